/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libcuda and the stand-in for nvidia-cuda-mps-control say to each other.
 *
 * The socket `control` in the pipe folder takes one line: `client UUID` is answered by
 * `ok LIMIT-BYTES PERCENT` (0 = no limit) and stays open as long as the client lives, `command …`
 * is answered by text until the end. The maker's own protocol is not public; the folder, the
 * variables and the commands are as in NVIDIA's Multi-Process Service document, release 590.
 */
#ifndef SIM_MPS_H
#define SIM_MPS_H

#define MPS_DEFAULT_FOLDER "/tmp/nvidia-mps"
#define MPS_CLIENTS 48 /* Volta and newer. */

static inline const char *mps_folder(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    return folder && *folder ? folder : MPS_DEFAULT_FOLDER;
}

/* `8G`, `8192M` or a plain number, which counts megabytes; 0 when it is none. */
static inline unsigned long long mps_bytes(const char *text)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    return end == text ? 0 : number << (*end == 'G' || *end == 'g' ? 30 : 20);
}

#endif
