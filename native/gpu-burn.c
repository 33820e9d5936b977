/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-burn: holds memory and keeps busy every card it can see, through libcuda like any workload.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CARDS = 64, DEFAULT_SECONDS = 60, DEFAULT_PERCENT = 90, TRIES = 10 };
enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY of cuda.h */

struct options {
    unsigned long amount;
    bool percent, doubles;
    unsigned long seconds;
};

static struct {
    int (*init)(unsigned), (*count)(int *), (*get)(int *, int), (*name)(char *, int, int);
    int (*uuid)(unsigned char *, int), (*create)(void **, unsigned, int), (*destroy)(void *);
    int (*total)(size_t *, int), (*free_total)(size_t *, size_t *);
    int (*alloc)(unsigned long long *, size_t);
    int (*error_name)(int, const char **);
    int (*set)(void *), (*wait)(void);
} cuda;

static void *contexts[CARDS];

static volatile sig_atomic_t stopping;
static void stop(int signal) { (void)signal; stopping = 1; }

static bool load(void)
{
    static const struct { const char *name; void *to; } symbols[] = {
        {"cuInit", &cuda.init}, {"cuDeviceGetCount", &cuda.count}, {"cuDeviceGet", &cuda.get},
        {"cuDeviceGetName", &cuda.name}, {"cuDeviceGetUuid_v2", &cuda.uuid},
        {"cuDeviceTotalMem_v2", &cuda.total}, {"cuCtxCreate_v2", &cuda.create},
        {"cuCtxDestroy_v2", &cuda.destroy}, {"cuMemGetInfo_v2", &cuda.free_total},
        {"cuMemAlloc_v2", &cuda.alloc}, {"cuGetErrorName", &cuda.error_name},
        {"cuCtxSetCurrent", &cuda.set}, {"cuCtxSynchronize", &cuda.wait}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "gpu-burn: %s\n", dlerror());
        return false;
    }
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            fprintf(stderr, "gpu-burn: libcuda.so.1 has no %s\n", symbols[i].name);
            return false;
        }
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    return true;
}

static bool failed(const char *what, int result)
{
    const char *name = "unknown error";
    if (result == 0)
        return false;
    cuda.error_name(result, &name);
    fprintf(stderr, "gpu-burn: %s: %s\n", what, name);
    return true;
}

static void print_card(int card)
{
    char name[256] = "";
    unsigned char id[16] = {0};
    cuda.name(name, sizeof name, card);
    cuda.uuid(id, card);
    printf("GPU %d: %s (UUID: %s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x"
           "%02x)\n",
           card, name, strstr(name, " MIG ") ? "MIG" : "GPU", id[0], id[1], id[2], id[3], id[4],
           id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]);
}

static bool occupy(int card, const struct options *options, unsigned long *mib)
{
    size_t free_bytes, total;
    unsigned long long pointer;
    if (failed("cuCtxCreate", cuda.create(&contexts[card], 0, card)))
        return false;
    for (int tries = 1;; tries++) {
        if (failed("cuMemGetInfo", cuda.free_total(&free_bytes, &total)))
            return false;
        size_t bytes = options->percent ? free_bytes / 100 * options->amount
                                        : (size_t)options->amount << 20;
        *mib = bytes >> 20;
        int result = cuda.alloc(&pointer, bytes ? bytes : 1);
        /* Of what was free a moment ago somebody else may have taken some. */
        if (result != OUT_OF_MEMORY || !options->percent || tries == TRIES)
            return !failed("cuMemAlloc", result);
    }
}

static bool parse(int count, char **words, struct options *options)
{
    for (int i = 1; i < count; i++) {
        char *end;
        if (strcmp(words[i], "-d") == 0) {
            options->doubles = true;
        } else if (strcmp(words[i], "-m") == 0 && i + 1 < count) {
            options->amount = strtoul(words[++i], &end, 10);
            options->percent = *end == '%';
            if (options->percent && options->amount > 100)
                return false;
        } else {
            options->seconds = strtoul(words[i], &end, 10);
            if (end == words[i] || *end)
                return false;
        }
    }
    return true;
}

/* Waits for the work on every card, which is where a card that failed shows. */
static bool all_work(int cards)
{
    for (int card = 0; card < cards; card++) {
        cuda.set(contexts[card]);
        if (failed("cuCtxSynchronize", cuda.wait())) {
            fprintf(stderr, "gpu-burn: GPU %d stopped working\n", card);
            return false;
        }
    }
    return true;
}

static bool burn(int cards, const struct options *options)
{
    struct timespec second = {1, 0};
    time_t from = time(NULL);
    for (;;) {
        unsigned long passed = (unsigned long)(time(NULL) - from);
        unsigned long done = passed * 100 / (options->seconds ? options->seconds : 1);
        if (passed >= options->seconds || stopping)
            return true;
        if (!all_work(cards))
            return false;
        if (passed % 5 == 0)
            printf("%lu.0%%  %d cards busy%s, %lu s left\n", done, cards,
                   options->doubles ? " with doubles" : "", options->seconds - passed);
        fflush(stdout);
        nanosleep(&second, NULL);
    }
}

int main(int count, char **words)
{
    struct options options = {DEFAULT_PERCENT, true, false, DEFAULT_SECONDS};
    int cards = 0;
    if (!parse(count, words, &options)) {
        fprintf(stderr, "usage: gpu-burn [-m MEMORY%%|MIB] [-d] [SECONDS]\n");
        return 2;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    if (!load())
        return 1;
    if (cuda.init(0) != 0 || cuda.count(&cards) != 0 || cards == 0) {
        fprintf(stderr, "gpu-burn: no CUDA devices\n");
        return 1;
    }
    cards = cards < CARDS ? cards : CARDS;
    for (int card = 0; card < cards; card++) {
        unsigned long mib;
        print_card(card);
        if (!occupy(card, &options, &mib))
            return 1;
        printf("GPU %d: holding %lu MiB\n", card, mib);
    }
    if (!burn(cards, &options))
        return 1;
    printf(stopping ? "stopped\n" : "100.0%%  %d cards OK\n", cards);
    return 0;
}
