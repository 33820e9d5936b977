/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-in for NVIDIA's MPS control daemon: `-f` in the foreground, `-d` in the background, and
 * without either the commands on standard input are given to the daemon of the pipe folder.
 *
 * It serves the cards that CUDA_VISIBLE_DEVICES names, keeps the default limits, and starts a
 * server at the first client, a process that only lives. Linked statically: it runs in a host
 * tree that has no libraries of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mps.h"

static int clients[MPS_CLIENTS];
static unsigned client_count;
static pid_t server;
static double percentage = 100.0;
static unsigned long long limit_bytes;
static bool quitting;
static char *title; /* What ps shows: the words of this process's command line. */
static size_t title_size;

static int fail(const char *what)
{
    fprintf(stderr, "nvidia-cuda-mps-control: %s: %s\n", what, strerror(errno));
    return 1;
}

static bool address(struct sockaddr_un *to)
{
    to->sun_family = AF_UNIX;
    return snprintf(to->sun_path, sizeof to->sun_path, "%s/control", mps_folder()) <
           (int)sizeof to->sun_path;
}

static void note(const char *text)
{
    const char *folder = getenv("CUDA_MPS_LOG_DIRECTORY");
    char path[4096];
    snprintf(path, sizeof path, "%s/control.log", folder && *folder ? folder : mps_folder());
    FILE *log = fopen(path, "ae");
    if (log) {
        fprintf(log, "[%d] %s\n", (int)getpid(), text);
        fclose(log);
    }
}

static void start_server(void)
{
    if (server)
        return;
    pid_t parent = getpid();
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* The daemon died before the signal was asked for. */
            _exit(0);
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        memset(title, 0, title_size);
        snprintf(title, title_size, "nvidia-cuda-mps-server");
        for (;;)
            pause();
    }
    note("Started a server");
}

static void stop_server(void)
{
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    server = 0;
}

static bool serves(const char *uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return !visible || strstr(visible, uuid);
}

static bool admit(int connection, const char *uuid)
{
    char answer[64];
    if (client_count == MPS_CLIENTS || !serves(uuid)) {
        const char *why = client_count == MPS_CLIENTS ? "full\n" : "none\n";
        return write(connection, why, 5) < 0;
    }
    start_server();
    int length = snprintf(answer, sizeof answer, "ok %llu %.1f\n", limit_bytes, percentage);
    if (write(connection, answer, (size_t)length) < 0)
        return false;
    clients[client_count++] = connection;
    return true;
}

/* Answers a command in the maker's words; what it does not know is told so. */
static void answer(const char *command, char *to, size_t size)
{
    char device[128], amount[32];
    *to = 0;
    if (strcmp(command, "get_server_list") == 0) {
        if (server)
            snprintf(to, size, "%d\n", (int)server);
    } else if (strcmp(command, "get_default_active_thread_percentage") == 0) {
        snprintf(to, size, "%.1f\n", percentage);
    } else if (sscanf(command, "set_default_active_thread_percentage %31s", amount) == 1) {
        double wanted = atof(amount);
        if (wanted > 0 && wanted <= 100)
            percentage = wanted;
        snprintf(to, size, "%.1f\n", percentage);
    } else if (sscanf(command, "set_default_device_pinned_mem_limit %127s %31s", device,
                      amount) == 2) {
        limit_bytes = mps_bytes(amount);
    } else if (sscanf(command, "get_default_device_pinned_mem_limit %127s", device) == 1) {
        snprintf(to, size, "%lluM\n", limit_bytes >> 20);
    } else if (strcmp(command, "quit") == 0 || strncmp(command, "quit ", 5) == 0) {
        quitting = true;
    } else {
        snprintf(to, size, "unrecognized command: %s\n", command);
    }
}

/* One line of a new connection; true when the connection is kept. */
static bool greet(int connection)
{
    struct timeval patience = {1, 0};
    char line[512], text[600];
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssize_t length = read(connection, line, sizeof line - 1);
    if (length <= 0)
        return false;
    line[length] = 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "client ", 7) == 0)
        return admit(connection, line + 7);
    if (strncmp(line, "command ", 8) == 0) {
        answer(line + 8, text, sizeof text);
        if (write(connection, text, strlen(text)) < 0)
            note("A command went away");
    }
    return false;
}

static void forget_gone(const struct pollfd *seen, unsigned count)
{
    for (unsigned i = count; i-- > 0;)
        if (seen[i + 1].revents) {
            close(clients[i]);
            clients[i] = clients[--client_count];
        }
}

static void serve(int listener)
{
    note("Serving");
    while (!quitting) {
        struct pollfd seen[MPS_CLIENTS + 1] = {{.fd = listener, .events = POLLIN}};
        unsigned count = client_count;
        for (unsigned i = 0; i < count; i++)
            seen[i + 1] = (struct pollfd){.fd = clients[i], .events = POLLIN | POLLRDHUP};
        if (poll(seen, count + 1, -1) < 0)
            continue;
        forget_gone(seen, count);
        int connection = seen[0].revents ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (connection >= 0 && !greet(connection))
            close(connection);
    }
    note("Quitting");
}

static void write_pid(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", mps_folder());
    FILE *file = fopen(path, "we");
    if (file) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
}

/* Holds the folder's lock until the end of the process; -1 while another daemon does. */
static int lock_folder(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/control_lock", mps_folder());
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 ? lock : -1;
}

static int run_daemon(bool background)
{
    struct sockaddr_un at = {0};
    mkdir(mps_folder(), 0755);
    if (!address(&at))
        return fail(mps_folder());
    if (background && daemon(0, 0) != 0)
        return fail("daemon");
    if (lock_folder() < 0) {
        fprintf(stderr, "An instance of this daemon is already running\n");
        return 1;
    }
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(at.sun_path);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        chmod(at.sun_path, 0666) != 0 || listen(listener, 64) != 0)
        return fail(at.sun_path);
    write_pid();
    signal(SIGPIPE, SIG_IGN);
    serve(listener);
    unlink(at.sun_path);
    stop_server();
    return 0;
}

static int ask(const char *command)
{
    struct sockaddr_un at = {0};
    char text[4096];
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!address(&at) || connect(connection, (struct sockaddr *)&at, sizeof at) != 0) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    int length = snprintf(text, sizeof text, "command %s\n", command);
    if (write(connection, text, (size_t)length) < 0)
        return fail("write");
    for (ssize_t got; (got = read(connection, text, sizeof text)) > 0;)
        fwrite(text, 1, (size_t)got, stdout);
    close(connection);
    return 0;
}

static int pass_commands(void)
{
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (*line && ask(line) != 0)
            return 1;
    }
    return 0;
}

int main(int count, char **words)
{
    title = words[0];
    title_size = (size_t)(words[count - 1] + strlen(words[count - 1]) - words[0]);
    bool background = count > 1 && strcmp(words[1], "-d") == 0;
    bool foreground = count > 1 && strcmp(words[1], "-f") == 0;
    if (count > 1 && !background && !foreground) {
        fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f]\n");
        return 1;
    }
    return background || foreground ? run_daemon(background) : pass_commands();
}
