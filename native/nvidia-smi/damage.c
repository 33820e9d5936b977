/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong on a card: ECC errors, pages and rows taken out of use, what would help.
 */
#include "fields.h"

static nvmlReturn_t read_ecc_mode(struct cell *cell)
{
    u32 current = 0, pending = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetEccMode(HANDLE, &current, &pending);
    return put_switch(cell, code, cell->number ? &pending : &current);
}

/* number: error kind, counter, location; location 0xf is the total. */
#define ECC(error, counter, location) ((error) << 8 | (counter) << 4 | (location))

static nvmlReturn_t read_ecc(struct cell *cell)
{
    u32 error = cell->number >> 8, counter = cell->number >> 4 & 0xf, where = cell->number & 0xf;
    u64 value = 0;
    nvmlReturn_t code =
        where == 0xf ? nvml.nvmlDeviceGetTotalEccErrors(HANDLE, error, counter, &value)
                     : nvml.nvmlDeviceGetMemoryErrorCounter(HANDLE, error, counter, where, &value);
    return put_long(cell, code, &value);
}

static nvmlReturn_t read_retired(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code;
    if (cell->number == 2) {
        code = nvml.nvmlDeviceGetRetiredPagesPendingStatus(HANDLE, &value);
        PUT("%s", value ? "Yes" : "No");
        return code;
    }
    code = nvml.nvmlDeviceGetRetiredPages(HANDLE, cell->number, &value, NULL);
    return put_number(cell, code == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : code, &value);
}

static nvmlReturn_t read_remapped(struct cell *cell)
{
    u32 rows[4] = {0};
    nvmlReturn_t code =
        nvml.nvmlDeviceGetRemappedRows(HANDLE, &rows[0], &rows[1], &rows[2], &rows[3]);
    return put_number(cell, code, &rows[cell->number]);
}

static nvmlReturn_t read_histogram(struct cell *cell)
{
    nvmlRowRemapperHistogram_t found = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetRowRemapperHistogram(HANDLE, &found);
    const u32 parts[] = {found.max, found.high, found.partial, found.low, found.none};
    return put_number(cell, code, &parts[cell->number]);
}

/* Field 230 (driver 570 and later). */
static nvmlReturn_t read_recovery(struct cell *cell)
{
    static const char *const ACTIONS[] = {"None", "Reset", "Reboot", "Drain P2P",
                                          "Drain and Reset", "Recover IMEX Domain"};
    u64 value = 0;
    bool known = field_value(HANDLE, 230, 0, &value);
    PUT("%s", value < 6 ? ACTIONS[value] : "Unknown");
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

const struct field damage_fields[] = {
    {"ecc.mode.current", NULL, NULL, read_ecc_mode, 0, "The ECC mode the GPU operates under."},
    {"ecc.mode.pending", NULL, NULL, read_ecc_mode, 1, "The ECC mode after the next reboot."},
#define ECC_ROWS(kind, error, period, counter)                                                     \
    {"ecc.errors." kind "." period ".device_memory", NULL, NULL, read_ecc,                         \
     ECC(error, counter, 2), "Errors detected in global device memory."},                          \
        {"ecc.errors." kind "." period ".dram", NULL, NULL, read_ecc, ECC(error, counter, 2),      \
         "Errors detected in DRAM."},                                                              \
        {"ecc.errors." kind "." period ".register_file", NULL, NULL, read_ecc,                     \
         ECC(error, counter, 3), "Errors detected in register file memory."},                      \
        {"ecc.errors." kind "." period ".l1_cache", NULL, NULL, read_ecc, ECC(error, counter, 0),  \
         "Errors detected in the L1 cache."},                                                      \
        {"ecc.errors." kind "." period ".l2_cache", NULL, NULL, read_ecc, ECC(error, counter, 1),  \
         "Errors detected in the L2 cache."},                                                      \
        {"ecc.errors." kind "." period ".sram", NULL, NULL, read_ecc, ECC(error, counter, 7),      \
         "Errors detected in SRAM."},                                                              \
        {"ecc.errors." kind "." period ".total", NULL, NULL, read_ecc, ECC(error, counter, 0xfu),  \
         "Total errors detected across entire chip."}
    ECC_ROWS("corrected", CORRECTED, "volatile", VOLATILE),
    ECC_ROWS("corrected", CORRECTED, "aggregate", AGGREGATE),
    ECC_ROWS("uncorrected", UNCORRECTED, "volatile", VOLATILE),
    ECC_ROWS("uncorrected", UNCORRECTED, "aggregate", AGGREGATE),
    {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", NULL, read_retired, 0,
     "Pages retired due to multiple single bit ECC errors."},
    {"retired_pages.double_bit.count", "retired_pages.dbe", NULL, read_retired, 1,
     "Pages retired due to one double bit ECC error."},
    {"retired_pages.pending", NULL, NULL, read_retired, 2, "Whether pages wait for a reboot."},
    {"remapped_rows.correctable", NULL, NULL, read_remapped, 0, "Rows remapped: corrected."},
    {"remapped_rows.uncorrectable", NULL, NULL, read_remapped, 1, "Rows remapped: uncorrected."},
    {"remapped_rows.pending", NULL, NULL, read_remapped, 2, "Whether rows wait for a reset."},
    {"remapped_rows.failure", NULL, NULL, read_remapped, 3, "Whether a remapping failed."},
    {"remapped_rows.histogram.max", NULL, NULL, read_histogram, 0, "Banks with all spares."},
    {"remapped_rows.histogram.high", NULL, NULL, read_histogram, 1, "Banks with most spares."},
    {"remapped_rows.histogram.partial", NULL, NULL, read_histogram, 2, "Banks with some spares."},
    {"remapped_rows.histogram.low", NULL, NULL, read_histogram, 3, "Banks with one spare."},
    {"remapped_rows.histogram.none", NULL, NULL, read_histogram, 4, "Banks without spares."},
    {"gpu_recovery_action", NULL, NULL, read_recovery, 0, "What would make the GPU whole again."},
    END_OF_FIELDS,
};
