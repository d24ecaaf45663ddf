/* What one process is told by its C library: a clock that jumped, a disk that refuses. Loaded before the real library; a file beside it, which the test writes, says what. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct plan {
  double asleep; /* seconds that passed on CLOCK_BOOTTIME and the wall clock, and on no other: the host slept */
  double wall;   /* seconds by which the wall clock is off */
  double gain;   /* seconds that both clocks gain in each, since the times below */
  double boot, real;
  int32_t call;  /* 1: fsync, 2: write */
  int32_t error;
  int32_t left; /* how many calls still fail */
  int32_t hits;
  char ends[128]; /* of the file's path */
};

static volatile struct plan *plan;

__attribute__((constructor)) static void begin(void) {
  int file = open(PLAN, O_RDWR | O_CLOEXEC); /* not by a variable: the guard of a pilot is started without any */
  if (file < 0) return;
  void *seen = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (seen != MAP_FAILED) plan = seen;
}

static double lie(clockid_t clock, const struct timespec *at) {
  double now = (double)at->tv_sec + (double)at->tv_nsec / 1e9;
  if (clock == CLOCK_BOOTTIME) return plan->asleep + plan->gain * (now - plan->boot);
  return plan->asleep + plan->wall + plan->gain * (now - plan->real);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int answer = (int)syscall(SYS_clock_gettime, clock, at);
  if (answer != 0 || !plan || (clock != CLOCK_BOOTTIME && clock != CLOCK_REALTIME)) return answer;
  int64_t off = (int64_t)(lie(clock, at) * 1e9), all = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + off;
  at->tv_sec = all / 1000000000;
  at->tv_nsec = all % 1000000000;
  return 0;
}

static int refused(int call, int file) {
  if (!plan || plan->call != call || plan->left <= 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  size_t wanted = strlen((const char *)plan->ends);
  if (length < (ssize_t)wanted) return 0;
  path[length] = 0;
  if (strcmp(path + length - wanted, (const char *)plan->ends) != 0) return 0;
  if (__sync_fetch_and_sub(&plan->left, 1) <= 0) return 0;
  __sync_fetch_and_add(&plan->hits, 1);
  errno = plan->error;
  return 1;
}

int fsync(int file) { return refused(1, file) ? -1 : (int)syscall(SYS_fsync, file); }

ssize_t write(int file, const void *from, size_t length) {
  return refused(2, file) ? -1 : (ssize_t)syscall(SYS_write, file, from, length);
}
