/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of --query-gpu and -q: a name, a unit and the function that reads it.
 *
 * A reader writes the value without its unit and answers NVML's code; the code alone decides
 * between [N/A] and the other bracketed words. A field without help is printed by -q only.
 */
#ifndef SMI_FIELDS_H
#define SMI_FIELDS_H

#include "smi.h"

struct cell {
    const struct card *card;
    u32 number; /* What the field table adds: a clock type, a location, a bit. */
    char text[128];
};

struct field {
    const char *name, *alias, *unit;
    nvmlReturn_t (*read)(struct cell *cell);
    u32 number;
    const char *help;
};

#define END_OF_FIELDS {NULL, NULL, NULL, NULL, 0, NULL}

extern const struct field identity_fields[], readings_fields[], damage_fields[];

#define PUT(...) snprintf(cell->text, sizeof cell->text, __VA_ARGS__)
#define HANDLE cell->card->handle

/* The writers take pointers: the call that fills the value is another argument of theirs, and C
 * leaves open which argument comes first. */
nvmlReturn_t put_number(struct cell *cell, nvmlReturn_t code, const u32 *number);
nvmlReturn_t put_long(struct cell *cell, nvmlReturn_t code, const u64 *number);
nvmlReturn_t put_switch(struct cell *cell, nvmlReturn_t code, const u32 *on);

#endif
