/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface of NVML that this library answers: names, sizes and numbers as nvidia-ml-py
 * 13.615.71 declares them. Only what the library fills in is declared; every other function of NVML
 * is exported from symbols.h without a type.
 */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_NO_PERMISSION = 4, NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13, NVML_ERROR_GPU_IS_LOST = 15, NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19, NVML_ERROR_MEMORY = 20, NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23, NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26, NVML_ERROR_INVALID_STATE = 29, NVML_ERROR_UNKNOWN = 999
};

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlSystemEventSet_st *nvmlSystemEventSet_t;
typedef struct nvmlUnit_st *nvmlUnit_t;
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    char busId[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned int version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct { unsigned long long bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long l1, l2, memory, registers; } nvmlEccErrorCounts_t;

typedef struct { unsigned int pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_t;
typedef struct {
    unsigned int version, mode, count;
    nvmlProcessDetail_t *entries;
} nvmlProcessDetailList_t;
typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
    unsigned long long timeStamp;
    unsigned int pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_t;
typedef struct {
    unsigned int version, count;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_t *entries;
} nvmlProcessesUtilizationInfo_t;
typedef struct {
    unsigned int gpuUtilization, memoryUtilization;
    unsigned long long maxMemoryUsage, time, startTime;
    unsigned int isRunning, reserved[5];
} nvmlAccountingStats_t;

typedef union {
    double dVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    int siVal;
    unsigned short usVal;
} nvmlValue_t;
enum {
    NVML_DOUBLE = 0, NVML_UINT = 1, NVML_ULONG = 2, NVML_ULLONG = 3, NVML_SLLONG = 4, NVML_INT = 5
};

typedef struct { unsigned long long timeStamp; nvmlValue_t sampleValue; } nvmlSample_t;
typedef struct { unsigned long long referenceTime, violationTime; } nvmlViolationTime_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned int valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct { unsigned int version; nvmlSystemEventSet_t set; } nvmlSystemEventSetRequest_t;
typedef struct {
    unsigned int version;
    unsigned long long eventTypes;
    nvmlSystemEventSet_t set;
} nvmlSystemRegisterEventRequest_t;
typedef struct { unsigned long long eventType; unsigned int gpuId; } nvmlSystemEventData_t;
typedef struct {
    unsigned int version, timeoutms;
    nvmlSystemEventSet_t set;
    nvmlSystemEventData_t *data;
    unsigned int dataSize, numEvent;
} nvmlSystemEventSetWaitRequest_t;

typedef struct { unsigned int start, size; } nvmlPlacement_t;
typedef struct {
    unsigned int id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned int copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
typedef struct {
    unsigned int version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned int copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
typedef struct {
    unsigned int version, id, sliceCount, instanceCount, multiprocessorCount;
    unsigned int copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
    unsigned int capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;
typedef struct {
    nvmlDevice_t device;
    unsigned int id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;
typedef struct {
    unsigned int id, sliceCount, instanceCount, multiprocessorCount;
    unsigned int sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned int sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
typedef struct {
    unsigned int version;
    nvmlComputeInstanceProfileInfo_t info;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;
typedef struct {
    unsigned int version;
    nvmlComputeInstanceProfileInfo_t info;
    char name[96];
    unsigned int capabilities;
} nvmlComputeInstanceProfileInfo_v3_t;
typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned int id, profileId;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;
typedef struct {
    unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount;
    unsigned int sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    unsigned int gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct { unsigned int max, high, partial, low, none; } nvmlRowRemapperHistogram_t;
typedef struct {
    unsigned int corrActive, corrInactive, uncActive, uncInactive, pending, failure;
} nvmlRemappedRows_v2_t;
typedef struct {
    unsigned int version;
    unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor;
    unsigned long long volatileUncParity, volatileUncSecDed, volatileCor;
    unsigned long long bucketL2, bucketSm, bucketPcie, bucketMcu, bucketOther;
    unsigned int thresholdExceeded;
} nvmlEccSramErrorStatus_t;

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned int state;
} nvmlGpuFabricInfo_t;
typedef struct {
    unsigned int version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId, state, healthMask;
} nvmlGpuFabricInfo_v2_t;
typedef struct {
    unsigned int version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId, state, healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;
typedef struct {
    unsigned int version;
    unsigned char ibGuid[16], chassisSerialNumber[16];
    unsigned char slotNumber, trayIndex, hostId, peerType, moduleId;
} nvmlPlatformInfo_t;

/* Structs of one version and one or two numbers share a shape. */
typedef struct { unsigned int version, value; } nvmlVersioned_t;
typedef struct { unsigned int version, first, second; } nvmlVersionedPair_t;
typedef struct { unsigned int version, sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned int version; int value; } nvmlMarginTemperature_t;
typedef struct { unsigned int version; unsigned long long value; } nvmlPdi_t;
typedef struct {
    unsigned int version, type;
    union { char str[41]; unsigned char bytes[16]; } value;
} nvmlUUID_t;
typedef struct { unsigned int version; char branch[80]; } nvmlSystemDriverBranchInfo_t;
typedef struct { unsigned int version, powerScope, powerValueMw; } nvmlPowerValue_v2_t;
typedef struct { unsigned int isC2cEnabled; } nvmlC2cModeInfo_t;
typedef struct {
    unsigned int flags;
    struct { unsigned int present, percentage, inc, dec; } utilization[8];
} nvmlGpuDynamicPstatesInfo_t;
typedef struct {
    unsigned int count;
    struct { int controller, min, max, current, target; } sensor[3];
} nvmlGpuThermalSettings_t;
typedef struct { unsigned int bridgeCount; unsigned int chips[128][2]; } nvmlBridgeChipHierarchy_t;
typedef struct {
    unsigned int version, type, pstate;
    int offset, min, max;
} nvmlClockOffset_t;
typedef struct { nvmlPciInfo_t pci; char uuid[80]; } nvmlExcludedDeviceInfo_t;
typedef struct {
    unsigned int metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct { char *shortName, *longName, *unit; } metricInfo;
} nvmlGpmMetric_t;
typedef struct {
    unsigned int version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[477];
} nvmlGpmMetricsGet_t;
typedef struct { unsigned int version, isSupportedDevice; } nvmlGpmSupport_t;
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

enum {
    NVML_EVENT_SBE = 0x1, NVML_EVENT_DBE = 0x2, NVML_EVENT_PSTATE = 0x4, NVML_EVENT_XID = 0x8,
    NVML_EVENT_CLOCK = 0x10, NVML_EVENT_POWER_SOURCE = 0x80, NVML_EVENT_MIG_CONFIG = 0x100,
    NVML_EVENT_SBE_STORM = 0x200, NVML_EVENT_RETIREMENT = 0x400,
    NVML_EVENT_RETIREMENT_FAILURE = 0x800, NVML_EVENT_POISON = 0x1000,
    NVML_EVENT_FATAL_POISON = 0x2000, NVML_EVENT_UNAVAILABLE = 0x4000,
    NVML_EVENT_RECOVERY_ACTION = 0x8000
};

/* The version word that NVML's headers compute for a struct. */
#define NVML_STRUCT(type, number) ((unsigned int)(sizeof(type) | (unsigned)(number) << 24))

#endif
