/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer that dies in the middle of a transaction: argument 2 says at which step, counted from
 * the journal's opening; at step 3 all is published, and only the journal is still open. It links the library's own state.c, so the journal it leaves behind is real.
 */
#include "capability.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PUBLISHED = 3 };

int main(int count, char **words)
{
    if (count != 3 || sim_open(words[1]) != SIM_OK)
        return 1;
    unsigned step = (unsigned)atoi(words[2]);
    struct sim_state *state = sim_begin(0);
    if (!state)
        return 1;
    if (step == PUBLISHED) {
        state->persistence = 1;
        __atomic_add_fetch(&sim_host->cards[0].sequence, 1, __ATOMIC_SEQ_CST);
        raise(SIGKILL);
    }
    if (step > 0)
        memset(state->instances, 0x5a, sizeof state->instances / 2);
    if (step > 1)
        memset(state, 0x5a, sizeof *state);
    raise(SIGKILL);
    return 0;
}
