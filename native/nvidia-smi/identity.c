/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a card is and how it is set: names, addresses, versions, modes.
 */
#include "fields.h"

static nvmlReturn_t read_timestamp(struct cell *cell)
{
    query_timestamp(cell->text, sizeof cell->text);
    return NVML_SUCCESS;
}

static nvmlReturn_t read_driver(struct cell *cell)
{
    return nvml.nvmlSystemGetDriverVersion(cell->text, 80);
}

static nvmlReturn_t read_count(struct cell *cell)
{
    u32 count = 0;
    return put_number(cell, nvml.nvmlDeviceGetCount_v2(&count), &count);
}

static nvmlReturn_t read_name(struct cell *cell)
{
    return nvml.nvmlDeviceGetName(HANDLE, cell->text, 96);
}

static nvmlReturn_t read_serial(struct cell *cell)
{
    return nvml.nvmlDeviceGetSerial(HANDLE, cell->text, 30);
}

static nvmlReturn_t read_uuid(struct cell *cell)
{
    return nvml.nvmlDeviceGetUUID(HANDLE, cell->text, 96);
}

static nvmlReturn_t read_vbios(struct cell *cell)
{
    return nvml.nvmlDeviceGetVbiosVersion(HANDLE, cell->text, 32);
}

static nvmlReturn_t read_inforom_image(struct cell *cell)
{
    return nvml.nvmlDeviceGetInforomImageVersion(HANDLE, cell->text, 16);
}

static nvmlReturn_t read_inforom(struct cell *cell)
{
    return nvml.nvmlDeviceGetInforomVersion(HANDLE, cell->number, cell->text, 16);
}

static nvmlReturn_t read_index(struct cell *cell)
{
    u32 index = cell->card->index;
    return put_number(cell, nvml.nvmlDeviceGetIndex(HANDLE, &index), &index);
}

enum pci_part { BUS_ID, DOMAIN, BUS, SLOT, DEVICE_ID, SUBSYSTEM };

static nvmlReturn_t read_pci(struct cell *cell)
{
    nvmlPciInfo_t pci = {0};
    nvmlReturn_t code = nvml.nvmlDeviceGetPciInfo_v3(HANDLE, &pci);
    switch (cell->number) {
    case BUS_ID: PUT("%s", pci.busId); break;
    case DOMAIN: PUT("0x%04X", pci.domain); break;
    case BUS: PUT("0x%02X", pci.bus); break;
    case SLOT: PUT("0x%02X", pci.device); break;
    case DEVICE_ID: PUT("0x%08X", pci.pciDeviceId); break;
    default: PUT("0x%08X", pci.pciSubSystemId);
    }
    return code;
}

enum link { GEN_NOW, GEN_MAX, GEN_GPU_MAX, WIDTH_NOW, WIDTH_MAX, REPLAYS };

static nvmlReturn_t read_pcie(struct cell *cell)
{
    nvmlReturn_t (*const calls[])(dev, u32 *) = {
        nvml.nvmlDeviceGetCurrPcieLinkGeneration, nvml.nvmlDeviceGetMaxPcieLinkGeneration,
        nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration, nvml.nvmlDeviceGetCurrPcieLinkWidth,
        nvml.nvmlDeviceGetMaxPcieLinkWidth, nvml.nvmlDeviceGetPcieReplayCounter};
    u32 value = 0;
    return put_number(cell, calls[cell->number](HANDLE, &value), &value);
}

static nvmlReturn_t read_module(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetModuleId(HANDLE, &value), &value);
}

static nvmlReturn_t read_display(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = (cell->number ? nvml.nvmlDeviceGetDisplayActive
                                      : nvml.nvmlDeviceGetDisplayMode)(HANDLE, &value);
    return put_switch(cell, code, &value);
}

static nvmlReturn_t read_persistence(struct cell *cell)
{
    u32 value = 0;
    return put_switch(cell, nvml.nvmlDeviceGetPersistenceMode(HANDLE, &value), &value);
}

static nvmlReturn_t read_addressing(struct cell *cell)
{
    nvmlVersioned_t mode = {.version = NVML_STRUCT(mode, 1)};
    nvmlReturn_t code = nvml.nvmlDeviceGetAddressingMode(HANDLE, &mode);
    PUT("%s", mode.value == 1 ? "HMM" : mode.value == 2 ? "ATS" : "None");
    return code;
}

static nvmlReturn_t read_accounting(struct cell *cell)
{
    u32 value = 0;
    if (cell->number)
        return put_number(cell, nvml.nvmlDeviceGetAccountingBufferSize(HANDLE, &value), &value);
    return put_switch(cell, nvml.nvmlDeviceGetAccountingMode(HANDLE, &value), &value);
}

static nvmlReturn_t read_compute_mode(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetComputeMode(HANDLE, &value);
    PUT("%s", value == 0 ? "Default" : value == 2 ? "Prohibited" : "Exclusive_Process");
    return code;
}

static nvmlReturn_t read_capability(struct cell *cell)
{
    int major = 0, minor = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetCudaComputeCapability(HANDLE, &major, &minor);
    PUT("%d.%d", major, minor);
    return code;
}

static nvmlReturn_t read_mig(struct cell *cell)
{
    u32 current = 0, pending = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetMigMode(HANDLE, &current, &pending);
    return put_switch(cell, code, cell->number ? &pending : &current);
}

static nvmlReturn_t read_fabric(struct cell *cell)
{
    static const char *const STATES[] = {"N/A", "Not Started", "In Progress", "Completed"};
    nvmlGpuFabricInfo_v2_t fabric = {.version = NVML_STRUCT(fabric, 2)};
    nvmlReturn_t code = nvml.nvmlDeviceGetGpuFabricInfoV(HANDLE, &fabric);
    if (code == NVML_SUCCESS && fabric.state == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    PUT("%s", cell->number ? (fabric.status ? error_text(fabric.status) : "Success")
                           : STATES[fabric.state & 3]);
    return code;
}

static nvmlReturn_t read_brand(struct cell *cell)
{
    u32 brand = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetBrand(HANDLE, &brand);
    PUT("%s", brand == 2    ? "Tesla"
              : brand == 13 ? "NVIDIA RTX"
              : brand == 14 ? "NVIDIA"
                            : "Unknown");
    return code;
}

static nvmlReturn_t read_architecture(struct cell *cell)
{
    static const char *const NAMES[] = {"Unknown", "Unknown", "Kepler",       "Maxwell",
                                        "Pascal",  "Volta",   "Turing",       "Ampere",
                                        "Ada Lovelace", "Hopper", "Blackwell"};
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetArchitecture(HANDLE, &value);
    PUT("%s", value < sizeof NAMES / sizeof *NAMES ? NAMES[value] : "Unknown");
    return code;
}

static nvmlReturn_t read_minor(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetMinorNumber(HANDLE, &value), &value);
}

static nvmlReturn_t read_board_id(struct cell *cell)
{
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetBoardId(HANDLE, &value);
    PUT("0x%x", value);
    return code;
}

static nvmlReturn_t read_board_part(struct cell *cell)
{
    return nvml.nvmlDeviceGetBoardPartNumber(HANDLE, cell->text, 80);
}

static nvmlReturn_t read_gsp(struct cell *cell)
{
    return nvml.nvmlDeviceGetGspFirmwareVersion(HANDLE, cell->text);
}

static nvmlReturn_t read_virtualization(struct cell *cell)
{
    static const char *const MODES[] = {"None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"};
    u32 value = 0;
    nvmlReturn_t code = nvml.nvmlDeviceGetVirtualizationMode(HANDLE, &value);
    PUT("%s", MODES[value < 5 ? value : 0]);
    return code;
}

static nvmlReturn_t read_none(struct cell *cell)
{
    (void)cell;
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t read_throughput(struct cell *cell)
{
    u32 value = 0;
    return put_number(cell, nvml.nvmlDeviceGetPcieThroughput(HANDLE, cell->number, &value), &value);
}

const struct field identity_fields[] = {
    {"timestamp", NULL, NULL, read_timestamp, 0, "The timestamp of when the query was made."},
    {"driver_version", NULL, NULL, read_driver, 0, "The version of the installed driver."},
    {"count", NULL, NULL, read_count, 0, "The number of GPUs in the system."},
    {"name", "gpu_name", NULL, read_name, 0, "The official product name of the GPU."},
    {"serial", "gpu_serial", NULL, read_serial, 0, "The serial number printed on the board."},
    {"uuid", "gpu_uuid", NULL, read_uuid, 0, "The globally unique identifier of the GPU."},
    {"pci.bus_id", "gpu_bus_id", NULL, read_pci, BUS_ID, "domain:bus:device.function, in hex."},
    {"pci.domain", NULL, NULL, read_pci, DOMAIN, "PCI domain number, in hex."},
    {"pci.bus", NULL, NULL, read_pci, BUS, "PCI bus number, in hex."},
    {"pci.device", NULL, NULL, read_pci, SLOT, "PCI device number, in hex."},
    {"pci.device_id", NULL, NULL, read_pci, DEVICE_ID, "PCI vendor device id, in hex."},
    {"pci.sub_device_id", NULL, NULL, read_pci, SUBSYSTEM, "PCI Sub System id, in hex."},
    {"vgpu_driver_capability.heterogenous_multivGPU", NULL, NULL, read_none, 0,
     "Whether heterogeneous multi-vGPU is supported by the driver."},
    {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", NULL, read_pcie, GEN_NOW,
     "The current PCI-E link generation."},
    {"pcie.link.gen.max", NULL, NULL, read_pcie, GEN_MAX,
     "The maximum PCI-E link generation possible with this GPU and system."},
    {"pcie.link.gen.gpumax", NULL, NULL, read_pcie, GEN_GPU_MAX,
     "The maximum PCI-E link generation supported by this GPU."},
    {"pcie.link.width.current", NULL, NULL, read_pcie, WIDTH_NOW, "The current PCI-E link width."},
    {"pcie.link.width.max", NULL, NULL, read_pcie, WIDTH_MAX, "The maximum PCI-E link width."},
    {"pcie.replays_since_reset", NULL, NULL, read_pcie, REPLAYS, "PCIe replays since reset."},
    {"index", NULL, NULL, read_index, 0, "Zero based index of the GPU."},
    {"module_id", NULL, NULL, read_module, 0, "Module id of the GPU on its baseboard."},
    {"display_mode", NULL, NULL, read_display, 0, "Whether a display is connected."},
    {"display_active", NULL, NULL, read_display, 1, "Whether a display is initialised."},
    {"persistence_mode", NULL, NULL, read_persistence, 0, "Whether persistence mode is enabled."},
    {"addressing_mode", NULL, NULL, read_addressing, 0, "The addressing mode: HMM, ATS or None."},
    {"accounting.mode", NULL, NULL, read_accounting, 0, "Whether accounting mode is enabled."},
    {"accounting.buffer_size", NULL, NULL, read_accounting, 1, "Size of the accounting buffer."},
    {"driver_model.current", NULL, NULL, read_none, 0, "The driver model; Windows only."},
    {"driver_model.pending", NULL, NULL, read_none, 0, "The driver model; Windows only."},
    {"vbios_version", NULL, NULL, read_vbios, 0, "The BIOS of the GPU board."},
    {"inforom.img", "inforom.image", NULL, read_inforom_image, 0, "Version of the infoROM image."},
    {"inforom.oem", NULL, NULL, read_inforom, 0, "Version for the OEM configuration data."},
    {"inforom.ecc", NULL, NULL, read_inforom, 1, "Version for the ECC recording data."},
    {"inforom.pwr", "inforom.power", NULL, read_inforom, 2, "Version for the power data."},
    {"gom.current", NULL, NULL, read_none, 0, "The GOM currently in use."},
    {"gom.pending", NULL, NULL, read_none, 0, "The GOM that will be used on the next reboot."},
    {"compute_mode", NULL, NULL, read_compute_mode, 0,
     "Default, Exclusive_Process or Prohibited."},
    {"compute_cap", NULL, NULL, read_capability, 0, "The CUDA Compute Capability."},
    {"encoder.stats.sessionCount", NULL, NULL, read_none, 0, "Encoder sessions."},
    {"encoder.stats.averageFps", NULL, NULL, read_none, 0, "Average FPS of encoder sessions."},
    {"encoder.stats.averageLatency", NULL, NULL, read_none, 0, "Average latency of sessions."},
    {"mig.mode.current", NULL, NULL, read_mig, 0, "The MIG mode the GPU operates under."},
    {"mig.mode.pending", NULL, NULL, read_mig, 1, "The MIG mode after the next reset."},
    {"gsp.mode.current", NULL, NULL, read_none, 0, "The GSP firmware mode."},
    {"fabric.state", NULL, NULL, read_fabric, 0, "State of GPU fabric registration."},
    {"fabric.status", NULL, NULL, read_fabric, 1, "Status of GPU fabric registration."},
    {"brand", NULL, NULL, read_brand, 0, ""},
    {"architecture", NULL, NULL, read_architecture, 0, ""},
    {"minor", NULL, NULL, read_minor, 0, ""},
    {"board_id", NULL, NULL, read_board_id, 0, ""},
    {"board_part", NULL, NULL, read_board_part, 0, ""},
    {"gsp", NULL, NULL, read_gsp, 0, ""},
    {"virtualization", NULL, NULL, read_virtualization, 0, ""},
    {"pcie.tx", NULL, "KB/s", read_throughput, 0, ""},
    {"pcie.rx", NULL, "KB/s", read_throughput, 1, ""},
    END_OF_FIELDS,
};
