/* The receiver of the push benchmarks: HTTP/1.1 over keep-alive connections, one thread, epoll, nothing kept.
 *
 * The first part of the path decides the response:
 *   /ok/...       200 at once
 *   /delay/MS/... 200 after MS milliseconds
 *   /hang/...     never
 *   /flap/MS/...  by turns of MS milliseconds 200 and 503
 *   /later/...    200, and never again once somebody has asked for /begin/
 *   /begin/...    200 at once; /end/... lets them respond again
 * Prints its port; ends when standard input closes, then prints how many requests came.
 *
 *   cc -O2 -o receiver compiled_receiver.c && ./receiver
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 65536, MAX_EVENTS = 256, FIRST_BYTES = 16384, MAX_BYTES = 4 << 20, TICK_MS = 5 };

static const char OK[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
static const char BUSY[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

struct connection {
    char *data;
    size_t used, room;
    int64_t due_ms; /* when the response that is owed goes out; 0 = none is owed */
    int silent;     /* it never gets a response again */
};

static struct connection *connections[MAX_CONNECTIONS];
static int highest, owed, poller, ill;
static uint64_t requests;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void forget(int fd) {
    struct connection *c = connections[fd];
    if (c->due_ms) owed--;
    free(c->data);
    free(c);
    connections[fd] = NULL;
    close(fd);
}

static void welcome(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= MAX_CONNECTIONS) {
            close(fd);
            continue;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        if (!c || !(c->data = malloc(FIRST_BYTES))) fail("malloc");
        c->room = FIRST_BYTES;
        connections[fd] = c;
        if (fd > highest) highest = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
    }
}

/* Returns the bytes of the first request, 0 if it is not whole yet, -1 if it is none. */
static ssize_t whole(const char *data, size_t used) {
    const char *end = memmem(data, used, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 4, body = 0;
    for (const char *line = memchr(data, '\n', head); line && line + 1 < end; line = memchr(line, '\n', end - line)) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "transfer-encoding:", 18)) return -1;
    }
    return used >= head + body ? (ssize_t)(head + body) : 0;
}

static int response(int fd, const char *text, size_t length) {
    /* a response is smaller than any socket buffer: what does not fit means a client that does not read */
    return write(fd, text, length) == (ssize_t)length;
}

/* Responds to, or owes a response for, the request at `path`; returns 0 if the connection is to be closed. */
static int take(int fd, struct connection *c, const char *path) {
    requests++;
    if (!strncmp(path, "/begin/", 7)) ill = 1;
    if (!strncmp(path, "/end/", 5)) ill = 0;
    if (!strncmp(path, "/hang/", 6) || (ill && !strncmp(path, "/later/", 7))) {
        c->silent = 1;
        return 1;
    }
    if (!strncmp(path, "/delay/", 7)) {
        c->due_ms = now_ms() + atoi(path + 7);
        owed++;
        return 1;
    }
    if (!strncmp(path, "/flap/", 6)) {
        int turn = atoi(path + 6);
        if (turn > 0 && now_ms() / turn % 2) return response(fd, BUSY, sizeof BUSY - 1);
    }
    return response(fd, OK, sizeof OK - 1);
}

/* Takes all whole requests that need not wait for a response owed; returns 0 if the connection is to be closed. */
static int work(int fd, struct connection *c) {
    size_t done = 0;
    while (!c->due_ms && !c->silent && done < c->used) {
        ssize_t length = whole(c->data + done, c->used - done);
        if (length < 0) return 0;
        if (!length) break;
        const char *path = memchr(c->data + done, ' ', (size_t)length);
        if (!path || !take(fd, c, path + 1)) return 0;
        done += (size_t)length;
    }
    memmove(c->data, c->data + done, c->used - done);
    c->used -= done;
    return 1;
}

static int hear(int fd, struct connection *c) {
    for (;;) {
        if (c->used == c->room) {
            if (c->room >= MAX_BYTES) return 0;
            c->room *= 2;
            if (!(c->data = realloc(c->data, c->room))) fail("realloc");
        }
        size_t asked = c->room - c->used;
        ssize_t got = read(fd, c->data + c->used, asked);
        if (got == 0) return 0;
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        c->used += (size_t)got;
        if (!work(fd, c)) return 0;
        if ((size_t)got < asked) return 1; /* that was all: asking again would cost a call per request */
    }
}

static void pay(void) {
    int64_t now = now_ms();
    for (int fd = 0; fd <= highest && owed; fd++) {
        struct connection *c = connections[fd];
        if (!c || !c->due_ms || c->due_ms > now) continue;
        c->due_ms = 0;
        owed--;
        if (!response(fd, OK, sizeof OK - 1) || !work(fd, c)) forget(fd);
    }
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll_create1");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event)) fail("epoll_ctl");
    event.data.fd = STDIN_FILENO;
    if (epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event)) fail("epoll_ctl");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[MAX_EVENTS];
        int count = epoll_wait(poller, ready, MAX_EVENTS, owed ? TICK_MS : -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                welcome(listener);
            } else if (fd == STDIN_FILENO) {
                char ignored[64];
                if (read(STDIN_FILENO, ignored, sizeof ignored) <= 0) {
                    printf("%llu\n", (unsigned long long)requests);
                    return 0;
                }
            } else if (connections[fd] && !hear(fd, connections[fd])) {
                forget(fd);
            }
        }
        if (owed) pay();
    }
}
