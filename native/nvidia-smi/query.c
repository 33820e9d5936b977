/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --query-gpu: finding fields by name and printing their values as CSV.
 */
#include "fields.h"

#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>

enum { MOST = 192 };

static const struct field *const TABLES[] = {identity_fields, readings_fields, damage_fields};

#define EACH_FIELD(field)                                                                          \
    for (size_t table = 0; table < sizeof TABLES / sizeof *TABLES; table++)                        \
        for (const struct field *field = TABLES[table]; field->name; field++)

nvmlReturn_t put_number(struct cell *cell, nvmlReturn_t code, const u32 *number)
{
    PUT("%u", *number);
    return code;
}

nvmlReturn_t put_long(struct cell *cell, nvmlReturn_t code, const u64 *number)
{
    PUT("%llu", *number);
    return code;
}

nvmlReturn_t put_switch(struct cell *cell, nvmlReturn_t code, const u32 *on)
{
    PUT("%s", *on ? "Enabled" : "Disabled");
    return code;
}

void query_timestamp(char *to, size_t size)
{
    struct timeval now;
    struct tm local;
    char seconds[32];
    gettimeofday(&now, NULL);
    strftime(seconds, sizeof seconds, "%Y/%m/%d %H:%M:%S", localtime_r(&now.tv_sec, &local));
    snprintf(to, size, "%s.%03d", seconds, (int)(now.tv_usec / 1000));
}

int help_query_cards(void)
{
    printf("List of valid properties to query for the switch \"--query-gpu=\":\n\n");
    EACH_FIELD(field)
    {
        if (!*field->help)
            continue;
        if (field->alias)
            printf("\"%s\" or \"%s\"\n%s\n\n", field->name, field->alias, field->help);
        else
            printf("\"%s\"\n%s\n\n", field->name, field->help);
    }
    return 0;
}

static const struct field *find_field(const char *name, bool queried)
{
    EACH_FIELD(field)
    {
        if (queried && !*field->help)
            continue;
        if (!strcasecmp(field->name, name) || (field->alias && !strcasecmp(field->alias, name)))
            return field;
    }
    fail(EXIT_ARGUMENT, "Field \"%s\" is not a valid field to query.\n\n", name);
}

bool query_text(const struct card *card, const char *name, char *to, size_t size)
{
    const struct field *field = find_field(name, false);
    struct cell cell = {.card = card, .number = field->number};
    nvmlReturn_t code = field->read(&cell);
    if (code == NVML_SUCCESS)
        snprintf(to, size, "%s%s%s", cell.text, field->unit ? " " : "",
                 field->unit ? field->unit : "");
    else if (code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND)
        snprintf(to, size, "N/A");
    else
        snprintf(to, size, "%s", error_text(code));
    return code == NVML_SUCCESS;
}

static void print_value(const struct field *field, struct cell *cell, bool units)
{
    nvmlReturn_t code = field->read(cell);
    switch (code) {
    case NVML_SUCCESS:
        printf("%s%s%s", cell->text, units && field->unit ? " " : "",
               units && field->unit ? field->unit : "");
        break;
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_FUNCTION_NOT_FOUND: printf("[N/A]"); break;
    default: printf("[%s]", error_text(code));
    }
}

int query_cards(const struct choice *choice, const char *names, const char *format)
{
    const struct field *fields[MOST];
    size_t count = 0;
    static char copy[16384], asked[MOST][64];
    char *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", names);
    while ((word = strsep(&rest, ",")) && count < MOST) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = 0;
        fields[count] = find_field(word, true);
        snprintf(asked[count++], sizeof *asked, "%s", word);
    }
    for (size_t i = 0; i < count && !strstr(format, "noheader"); i++)
        printf("%s%s%s%s%s", asked[i], fields[i]->unit ? " [" : "",
               fields[i]->unit ? fields[i]->unit : "", fields[i]->unit ? "]" : "",
               i + 1 < count ? ", " : "\n");
    for (u32 i = 0; i < choice->count; i++)
        for (size_t j = 0; j < count; j++) {
            struct cell cell = {.card = &choice->cards[i], .number = fields[j]->number};
            print_value(fields[j], &cell, !strstr(format, "nounits"));
            printf("%s", j + 1 < count ? ", " : "\n");
        }
    return 0;
}
