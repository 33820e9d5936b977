/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of nvidia-smi share: the library's calls, the cards chosen by -i, exit codes.
 *
 * The program knows only NVML (looked up in libnvidia-ml.so.1 at start), never the simulation's
 * state, so what it prints is what every other client of the library is told.
 */
#ifndef SMI_H
#define SMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../nvml.h"

#define SMI_CARDS 64
#define SMI_ANY UINT32_MAX /* No GPU or compute instance. */

typedef nvmlDevice_t dev;
typedef nvmlGpuInstance_t gi_t;
typedef nvmlComputeInstance_t ci_t;
typedef unsigned int u32;
typedef unsigned long long u64;

/* Every call of the library: name and parameters. */
#define SMI_CALLS(X)                                                                               \
    X(nvmlInit_v2, (void))                                                                         \
    X(nvmlShutdown, (void))                                                                        \
    X(nvmlSystemGetDriverVersion, (char *, u32))                                                   \
    X(nvmlSystemGetNVMLVersion, (char *, u32))                                                     \
    X(nvmlSystemGetCudaDriverVersion, (int *))                                                     \
    X(nvmlSystemGetProcessName, (u32, char *, u32))                                                \
    X(nvmlDeviceGetCount_v2, (u32 *))                                                              \
    X(nvmlDeviceGetHandleByIndex_v2, (u32, dev *))                                                 \
    X(nvmlDeviceGetHandleByUUID, (const char *, dev *))                                            \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, dev *))                                     \
    X(nvmlDeviceGetIndex, (dev, u32 *))                                                            \
    X(nvmlDeviceGetName, (dev, char *, u32))                                                       \
    X(nvmlDeviceGetUUID, (dev, char *, u32))                                                       \
    X(nvmlDeviceGetSerial, (dev, char *, u32))                                                     \
    X(nvmlDeviceGetBrand, (dev, u32 *))                                                            \
    X(nvmlDeviceGetArchitecture, (dev, u32 *))                                                     \
    X(nvmlDeviceGetBoardPartNumber, (dev, char *, u32))                                            \
    X(nvmlDeviceGetBoardId, (dev, u32 *))                                                          \
    X(nvmlDeviceGetVbiosVersion, (dev, char *, u32))                                               \
    X(nvmlDeviceGetInforomImageVersion, (dev, char *, u32))                                        \
    X(nvmlDeviceGetInforomVersion, (dev, u32, char *, u32))                                        \
    X(nvmlDeviceGetGspFirmwareVersion, (dev, char *))                                              \
    X(nvmlDeviceGetMinorNumber, (dev, u32 *))                                                      \
    X(nvmlDeviceGetModuleId, (dev, u32 *))                                                         \
    X(nvmlDeviceGetPciInfo_v3, (dev, nvmlPciInfo_t *))                                             \
    X(nvmlDeviceGetCurrPcieLinkGeneration, (dev, u32 *))                                           \
    X(nvmlDeviceGetCurrPcieLinkWidth, (dev, u32 *))                                                \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (dev, u32 *))                                            \
    X(nvmlDeviceGetMaxPcieLinkWidth, (dev, u32 *))                                                 \
    X(nvmlDeviceGetGpuMaxPcieLinkGeneration, (dev, u32 *))                                         \
    X(nvmlDeviceGetPcieReplayCounter, (dev, u32 *))                                                \
    X(nvmlDeviceGetPcieThroughput, (dev, u32, u32 *))                                              \
    X(nvmlDeviceGetMemoryInfo, (dev, nvmlMemory_t *))                                              \
    X(nvmlDeviceGetMemoryInfo_v2, (dev, nvmlMemory_v2_t *))                                        \
    X(nvmlDeviceGetBAR1MemoryInfo, (dev, nvmlBAR1Memory_t *))                                      \
    X(nvmlDeviceGetUtilizationRates, (dev, nvmlUtilization_t *))                                   \
    X(nvmlDeviceGetEncoderUtilization, (dev, u32 *, u32 *))                                        \
    X(nvmlDeviceGetDecoderUtilization, (dev, u32 *, u32 *))                                        \
    X(nvmlDeviceGetJpgUtilization, (dev, u32 *, u32 *))                                            \
    X(nvmlDeviceGetOfaUtilization, (dev, u32 *, u32 *))                                            \
    X(nvmlDeviceGetTemperature, (dev, u32, u32 *))                                                 \
    X(nvmlDeviceGetMarginTemperature, (dev, nvmlMarginTemperature_t *))                            \
    X(nvmlDeviceGetTemperatureThreshold, (dev, u32, u32 *))                                        \
    X(nvmlDeviceGetFanSpeed, (dev, u32 *))                                                         \
    X(nvmlDeviceGetPowerUsage, (dev, u32 *))                                                       \
    X(nvmlDeviceGetEnforcedPowerLimit, (dev, u32 *))                                               \
    X(nvmlDeviceGetPowerManagementLimit, (dev, u32 *))                                             \
    X(nvmlDeviceGetPowerManagementDefaultLimit, (dev, u32 *))                                      \
    X(nvmlDeviceGetPowerManagementLimitConstraints, (dev, u32 *, u32 *))                           \
    X(nvmlDeviceSetPowerManagementLimit, (dev, u32))                                               \
    X(nvmlDeviceGetPerformanceState, (dev, u32 *))                                                 \
    X(nvmlDeviceGetCurrentClocksEventReasons, (dev, u64 *))                                        \
    X(nvmlDeviceGetClockInfo, (dev, u32, u32 *))                                                   \
    X(nvmlDeviceGetMaxClockInfo, (dev, u32, u32 *))                                                \
    X(nvmlDeviceGetApplicationsClock, (dev, u32, u32 *))                                           \
    X(nvmlDeviceGetSupportedMemoryClocks, (dev, u32 *, u32 *))                                     \
    X(nvmlDeviceGetSupportedGraphicsClocks, (dev, u32, u32 *, u32 *))                              \
    X(nvmlDeviceGetEccMode, (dev, u32 *, u32 *))                                                   \
    X(nvmlDeviceSetEccMode, (dev, u32))                                                            \
    X(nvmlDeviceGetTotalEccErrors, (dev, u32, u32, u64 *))                                         \
    X(nvmlDeviceGetMemoryErrorCounter, (dev, u32, u32, u32, u64 *))                                \
    X(nvmlDeviceGetRetiredPages, (dev, u32, u32 *, u64 *))                                         \
    X(nvmlDeviceGetRetiredPagesPendingStatus, (dev, u32 *))                                        \
    X(nvmlDeviceGetRemappedRows, (dev, u32 *, u32 *, u32 *, u32 *))                                \
    X(nvmlDeviceGetRowRemapperHistogram, (dev, nvmlRowRemapperHistogram_t *))                      \
    X(nvmlDeviceGetComputeMode, (dev, u32 *))                                                      \
    X(nvmlDeviceSetComputeMode, (dev, u32))                                                        \
    X(nvmlDeviceGetPersistenceMode, (dev, u32 *))                                                  \
    X(nvmlDeviceSetPersistenceMode, (dev, u32))                                                    \
    X(nvmlDeviceGetDisplayMode, (dev, u32 *))                                                      \
    X(nvmlDeviceGetDisplayActive, (dev, u32 *))                                                    \
    X(nvmlDeviceGetAccountingMode, (dev, u32 *))                                                   \
    X(nvmlDeviceGetAccountingBufferSize, (dev, u32 *))                                             \
    X(nvmlDeviceGetCudaComputeCapability, (dev, int *, int *))                                     \
    X(nvmlDeviceGetVirtualizationMode, (dev, u32 *))                                               \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (dev, u32 *, nvmlProcessInfo_t *))                  \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (dev, u32 *, nvmlProcessInfo_t *))                 \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (dev, u32 *, nvmlProcessInfo_t *))               \
    X(nvmlDeviceGetFieldValues, (dev, int, nvmlFieldValue_t *))                                    \
    X(nvmlDeviceGetTopologyCommonAncestor, (dev, dev, u32 *))                                      \
    X(nvmlDeviceGetCpuAffinity, (dev, u32, unsigned long *))                                       \
    X(nvmlDeviceGetNumaNodeId, (dev, u32 *))                                                       \
    X(nvmlDeviceGetMemoryAffinity, (dev, u32, unsigned long *, u32))                               \
    X(nvmlDeviceGetNvLinkState, (dev, u32, u32 *))                                                 \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (dev, u32, nvmlPciInfo_t *))                            \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, (dev, u32, u32 *))                                      \
    X(nvmlDeviceGetGpuFabricInfoV, (dev, nvmlGpuFabricInfo_v2_t *))                                \
    X(nvmlDeviceGetAddressingMode, (dev, nvmlVersioned_t *))                                       \
    X(nvmlDeviceSetGpuLockedClocks, (dev, u32, u32))                                               \
    X(nvmlDeviceResetGpuLockedClocks, (dev))                                                       \
    X(nvmlDeviceSetApplicationsClocks, (dev, u32, u32))                                            \
    X(nvmlDeviceResetApplicationsClocks, (dev))                                                    \
    X(nvmlDeviceGetMigMode, (dev, u32 *, u32 *))                                                   \
    X(nvmlDeviceSetMigMode, (dev, u32, nvmlReturn_t *))                                            \
    X(nvmlDeviceGetMaxMigDeviceCount, (dev, u32 *))                                                \
    X(nvmlDeviceGetMigDeviceHandleByIndex, (dev, u32, dev *))                                      \
    X(nvmlDeviceGetAttributes_v2, (dev, nvmlDeviceAttributes_t *))                                 \
    X(nvmlDeviceGetGpuInstanceId, (dev, u32 *))                                                    \
    X(nvmlDeviceGetComputeInstanceId, (dev, u32 *))                                                \
    X(nvmlDeviceGetGpuInstanceProfileInfoV, (dev, u32, nvmlGpuInstanceProfileInfo_v2_t *))         \
    X(nvmlDeviceGetGpuInstanceRemainingCapacity, (dev, u32, u32 *))                                \
    X(nvmlDeviceGetGpuInstancePossiblePlacements_v2, (dev, u32, nvmlPlacement_t *, u32 *))         \
    X(nvmlDeviceGetGpuInstances, (dev, u32, gi_t *, u32 *))                                        \
    X(nvmlDeviceGetGpuInstanceById, (dev, u32, gi_t *))                                            \
    X(nvmlDeviceCreateGpuInstance, (dev, u32, gi_t *))                                             \
    X(nvmlDeviceCreateGpuInstanceWithPlacement, (dev, u32, const nvmlPlacement_t *, gi_t *))       \
    X(nvmlGpuInstanceGetInfo, (gi_t, nvmlGpuInstanceInfo_t *))                                     \
    X(nvmlGpuInstanceDestroy, (gi_t))                                                              \
    X(nvmlGpuInstanceGetComputeInstanceProfileInfoV,                                               \
      (gi_t, u32, u32, nvmlComputeInstanceProfileInfo_v2_t *))                                     \
    X(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, (gi_t, u32, u32 *))                      \
    X(nvmlGpuInstanceGetComputeInstances, (gi_t, u32, ci_t *, u32 *))                              \
    X(nvmlGpuInstanceGetComputeInstanceById, (gi_t, u32, ci_t *))                                  \
    X(nvmlGpuInstanceCreateComputeInstance, (gi_t, u32, ci_t *))                                   \
    X(nvmlComputeInstanceGetInfo_v2, (ci_t, nvmlComputeInstanceInfo_t *))                          \
    X(nvmlComputeInstanceDestroy, (ci_t))                                                          \
    X(simReset, (dev))                                                                             \
    X(simGetTimeslice, (dev, u32 *))                                                               \
    X(simSetTimeslice, (dev, u32))

struct smi_calls {
#define X(name, parameters) nvmlReturn_t(*name) parameters;
    SMI_CALLS(X)
#undef X
    void (*simBusId)(u32 index, char *to, u32 size);
};

extern struct smi_calls nvml;

/* NVML's enums as far as the program passes them. */
enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, CLOCK_VIDEO = 3 };
enum { CORRECTED = 0, UNCORRECTED = 1, VOLATILE = 0, AGGREGATE = 1 };
enum { GI_PROFILES = 18, CI_PROFILES = 9, GI_MAX = 16, CI_MAX = 8 };

/* Exit codes are NVML's return codes but for bad arguments. */
enum { EXIT_ARGUMENT = 2, EXIT_NO_DEVICES = 6, EXIT_OTHER = 255 };

struct card {
    dev handle;
    u32 index;
    nvmlReturn_t status; /* Of getting the handle. */
    char bus_id[32], name[96];
};

/* The cards that the command is about: all, or those of -i. */
struct choice {
    struct card cards[SMI_CARDS];
    u32 count;
    bool lost; /* A card's handle could not be had; its error line is printed. */
};

/* smi.c */
const char *error_text(nvmlReturn_t code);
int exit_code(nvmlReturn_t code);
void fail(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* Cards by a list of indexes, UUIDs, serials or bus ids; NULL = all. Exits when there are none. */
void choose(const char *list, struct choice *choice);
bool field_value(dev handle, u32 field, u32 scope, u64 *value);
bool parse_number(const char *text, u32 *number);

/* One function a command; each returns the exit code. */
int list_cards(const struct choice *choice, bool with_mig);
int print_table(const struct choice *choice);
int print_details(const struct choice *choice, const char *sections);
int query_cards(const struct choice *choice, const char *fields, const char *format);
int query_processes(const struct choice *choice, const char *fields, const char *format);
int help_query_cards(void);
int help_query_processes(void);
int mig_command(int argc, char **argv);
int policy_command(int argc, char **argv);
int topology_command(int argc, char **argv);

/* query.c */
void query_timestamp(char *to, size_t size);
/* A field's value with its unit, N/A or an error's words; true when there is a value. */
bool query_text(const struct card *card, const char *name, char *to, size_t size);

/* processes.c: who uses a card; a program in two lists is one row of type C+G. */
struct use {
    u32 pid, gi, ci;
    u64 bytes;
    char type[4], name[256];
};
u32 list_uses(dev handle, struct use *uses, u32 room);

/* changes.c */
struct changes {
    const char *mig, *persistence, *compute_mode, *power_limit, *ecc, *locked_clocks, *app_clocks;
    bool reset, reset_locked_clocks, reset_app_clocks;
};
bool any_change(const struct changes *changes);
int apply_changes(const struct choice *choice, const struct changes *changes);

#endif
