/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox process of a pod: holds its namespaces, reaps orphans, ends when told to.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t wanted;
    int got;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGCHLD);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    while (sigwait(&wanted, &got) != 0 || got == SIGCHLD)
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    return 0;
}
