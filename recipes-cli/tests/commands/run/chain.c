/*
 * A chain of processes: each sleeps, forks the next one and ends at once. Each leaves the process
 * group and the session. A link writes down its number and the time of the machine's monotonic clock.
 * The chain ends when the file `stop` exists in the current folder.
 *
 * chain PAUSE_US FILE
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count != 3) return 64;
    long pause = atol(arguments[1]) * 1000;
    int file = open(arguments[2], O_WRONLY | O_CREAT, 0644);
    if (file < 0) return 70;
    for (long link = 0; access("stop", F_OK) != 0; link++) {
        struct timespec slept = {pause / 1000000000, pause % 1000000000}, now;
        nanosleep(&slept, NULL);
        pid_t next = fork();
        if (next > 0) _exit(0);
        if (next < 0) return 71;
        setsid();
        clock_gettime(CLOCK_MONOTONIC, &now);
        char text[64];
        int length = snprintf(text, sizeof text, "%20ld %20lld\n", link,
                              now.tv_sec * 1000000000LL + now.tv_nsec);
        if (pwrite(file, text, length, 0) != length) return 72;
    }
    return 0;
}
