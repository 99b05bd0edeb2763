/* mark SECONDS EXIT_CODE [alive]: a job that writes down itself that it begins, lives (every 50 ms) and ends: one line
   each, in one write, with the run and the boot-time clock, into the file $TRUTH. With `alive` it is only a companion:
   no begin and no end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double boottime(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void say(int fd, const char *word, int code) {
    char line[400];
    int length = snprintf(line, sizeof line, "%s %s %.6f %d %s\n", word, getenv("PGCRON_RUN_ID"), boottime(), code,
                          getenv("PGCRON_JOB"));
    if (write(fd, line, length) != length) _exit(97);
}

int main(int count, char **words) {
    double until = boottime() + atof(words[1]);
    int code = atoi(words[2]), companion = count > 3;
    int fd = open(getenv("TRUTH"), O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (fd < 0) return 98;
    if (!companion) say(fd, "begin", 0);
    for (double left; (left = until - boottime()) > 0;) {
        struct timespec pause = {0, left < 0.05 ? (long)(left * 1e9) : 50000000L};
        nanosleep(&pause, NULL);
        say(fd, "alive", 0);
    }
    if (!companion) say(fd, "end", code);
    return code;
}
