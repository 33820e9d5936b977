/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-smi topo -m: how each card reaches each other, its CPUs and its memory.
 */
#include <string.h>

#include "smi.h"

enum { LINKS = 36, CPU_WORDS = 16, TO_SWITCH = 2 };

static const char *const LEGEND =
    "\nLegend:\n\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes "
    "(e.g., QPI/UPI)\n"
    "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges "
    "within a NUMA node\n"
    "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n"
    "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host "
    "Bridge)\n"
    "  PIX  = Connection traversing at most a single PCIe bridge\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n";

static u32 active_links(dev handle, const char *peer_bus_id, bool to_switch)
{
    u32 count = 0;
    for (u32 link = 0; link < LINKS; link++) {
        u32 active = 0, type = 0;
        nvmlPciInfo_t remote = {0};
        if (nvml.nvmlDeviceGetNvLinkState(handle, link, &active) != NVML_SUCCESS || !active)
            continue;
        if (to_switch) {
            if (nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link, &type) == NVML_SUCCESS &&
                type == TO_SWITCH)
                count++;
        } else if (nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, &remote) ==
                       NVML_SUCCESS &&
                   !strcmp(remote.busId, peer_bus_id)) {
            count++;
        }
    }
    return count;
}

static u32 nvlinks(const struct card *from, const struct card *to)
{
    u32 direct = active_links(from->handle, to->bus_id, false);
    if (direct)
        return direct;
    u32 near = active_links(from->handle, "", true), far = active_links(to->handle, "", true);
    return near < far ? near : far;
}

static void print_path(const struct card *from, const struct card *to)
{
    u32 level = 0, links;
    if (from->index == to->index) {
        printf("\t X ");
        return;
    }
    if ((links = nvlinks(from, to))) {
        printf("\tNV%u", links);
        return;
    }
    if (nvml.nvmlDeviceGetTopologyCommonAncestor(from->handle, to->handle, &level) !=
        NVML_SUCCESS) {
        printf("\tN/A");
        return;
    }
    printf("\t%s", level <= 10   ? "PIX"
                   : level <= 20 ? "PXB"
                   : level <= 30 ? "PHB"
                   : level <= 40 ? "NODE"
                                 : "SYS");
}

static bool bit(const unsigned long *words, u32 number)
{
    return words[number / (8 * sizeof *words)] >> number % (8 * sizeof *words) & 1;
}

static void format_bits(const unsigned long *words, u32 count, char *to, size_t size)
{
    size_t used = 0;
    *to = 0;
    for (u32 first = 0; first < count; first++) {
        u32 last = first;
        if (!bit(words, first))
            continue;
        while (last + 1 < count && bit(words, last + 1))
            last++;
        int written = snprintf(to + used, size - used, first == last ? "%s%u" : "%s%u-%u",
                               used ? "," : "", first, last);
        if (written < 0 || (size_t)written >= size - used)
            return;
        used += (size_t)written;
        first = last;
    }
}

static void print_affinity(const struct card *card)
{
    unsigned long cpus[CPU_WORDS] = {0}, nodes[CPU_WORDS] = {0};
    char cpu_text[256] = "N/A", node_text[256] = "N/A";
    if (nvml.nvmlDeviceGetCpuAffinity(card->handle, CPU_WORDS, cpus) == NVML_SUCCESS)
        format_bits(cpus, CPU_WORDS * 8 * sizeof *cpus, cpu_text, sizeof cpu_text);
    if (nvml.nvmlDeviceGetMemoryAffinity(card->handle, CPU_WORDS, nodes, 0) == NVML_SUCCESS)
        format_bits(nodes, CPU_WORDS * 8 * sizeof *nodes, node_text, sizeof node_text);
    printf("\t%s\t%s\t\tN/A\n", *cpu_text ? cpu_text : "N/A", *node_text ? node_text : "N/A");
}

static int print_matrix(const struct choice *choice)
{
    printf("\t\033[4m");
    for (u32 i = 0; i < choice->count; i++)
        printf("GPU%u\t", choice->cards[i].index);
    printf("CPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n");
    for (u32 i = 0; i < choice->count; i++) {
        printf("GPU%u", choice->cards[i].index);
        for (u32 j = 0; j < choice->count; j++)
            print_path(&choice->cards[i], &choice->cards[j]);
        print_affinity(&choice->cards[i]);
    }
    printf("%s", LEGEND);
    return 0;
}

int topology_command(int argc, char **argv)
{
    static struct choice choice;
    const char *cards = NULL;
    bool matrix = false;
    for (int place = 0; place < argc; place++) {
        if (!strcmp(argv[place], "-m") || !strcmp(argv[place], "--matrix"))
            matrix = true;
        else if ((!strcmp(argv[place], "-i") || !strcmp(argv[place], "--id")) && place + 1 < argc)
            cards = argv[++place];
        else if (!strcmp(argv[place], "-h") || !strcmp(argv[place], "--help"))
            fail(0, "    topo -- Display topological information about the system.\n\n"
                    "    -m | --matrix  Display the GPUDirect communication matrix.\n");
        else
            fail(EXIT_ARGUMENT, "Option \"%s\" is not recognized. Please run 'nvidia-smi topo "
                                "-h'.\n", argv[place]);
    }
    if (!matrix)
        fail(EXIT_ARGUMENT, "Invalid combination of input arguments. Please run 'nvidia-smi topo "
                            "-h' for help.\n");
    choose(cards, &choice);
    return print_matrix(&choice);
}
