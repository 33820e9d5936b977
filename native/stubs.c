/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of NVML that no simulated card supports. Weak: a definition elsewhere replaces
 * them.
 */
#include "library.h"
#include "symbols.h"

#define X(name)                                                                                    \
    nvmlReturn_t name(void);                                                                       \
    EXPORT __attribute__((weak)) nvmlReturn_t name(void)                                           \
    {                                                                                              \
        return library_ready() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;              \
    }

NVML_FUNCTIONS(X)
