// Clocks that step when they are told to: preloaded, in front of libc's own.
//
// A deadline that a caller has made from a clock here is given to libc as that
// of the clock there is. The kernel knows of no step, so a wait until a moment
// of the wall clock would not end early, as it does where that clock is set:
// such waits are counted.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>

namespace {

constexpr int64_t kNs = 1'000'000'000;
std::atomic<int64_t> wall{0}, steady{0};  // by how much they have stepped
std::atomic<long> wall_waits{0};          // of the extension

std::atomic<int64_t>* stepped(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return &wall;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
      return &steady;
    default:
      return nullptr;
  }
}

timespec moved(timespec time, int64_t ns) {
  const int64_t at = int64_t(time.tv_sec) * kNs + time.tv_nsec + ns;
  if (at < 0) return {0, 0};
  return {time_t(at / kNs), long(at % kNs)};
}

template <typename F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

bool is_ours(const void* address) {
  Dl_info found;
  return dladdr(address, &found) && found.dli_fname &&
         strstr(found.dli_fname, "npu_dispatch/_C.");
}

// The moment of the kernel's clock that a caller means by one of a clock here.
timespec real(clockid_t clock, const timespec* time, const void* caller) {
  if (clock == CLOCK_REALTIME && is_ours(caller)) wall_waits.fetch_add(1);
  const auto* by = stepped(clock);
  return moved(*time, by ? -by->load() : 0);
}

// Of a condition or a semaphore that does not say which clock: it is 1970 for
// one of them.
clockid_t clock_of(const timespec* time) {
  return time->tv_sec > 500'000'000 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

// Lets the wall clock (0), or the one that only goes on (1), step.
void clock_step(int which, int64_t ns) { (which ? steady : wall) += ns; }
long clock_wall_waits() { return wall_waits; }

int clock_gettime(clockid_t clock, timespec* to) noexcept {
  using F = int (*)(clockid_t, timespec*);
  static const auto real_call = next<F>("clock_gettime");
  const int failed = real_call(clock, to);
  if (const auto* by = stepped(clock); by && !failed) *to = moved(*to, *by);
  return failed;
}
int gettimeofday(timeval* to, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *to = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
time_t time(time_t* to) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

int pthread_cond_clockwait(pthread_cond_t* on, pthread_mutex_t* with,
                           clockid_t clock, const timespec* until) {
  using F =
      int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto real_call = next<F>("pthread_cond_clockwait");
  const timespec moment = real(clock, until, CALLER);
  return real_call(on, with, clock, &moment);
}
int pthread_cond_timedwait(pthread_cond_t* on, pthread_mutex_t* with,
                           const timespec* until) {
  using F = int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static const auto real_call = next<F>("pthread_cond_timedwait");
  const timespec moment = real(clock_of(until), until, CALLER);
  return real_call(on, with, &moment);
}
int sem_clockwait(sem_t* on, clockid_t clock, const timespec* until) {
  using F = int (*)(sem_t*, clockid_t, const timespec*);
  static const auto real_call = next<F>("sem_clockwait");
  const timespec moment = real(clock, until, CALLER);
  return real_call(on, clock, &moment);
}
int sem_timedwait(sem_t* on, const timespec* until) {
  using F = int (*)(sem_t*, const timespec*);
  static const auto real_call = next<F>("sem_timedwait");
  const timespec moment = real(CLOCK_REALTIME, until, CALLER);
  return real_call(on, &moment);
}

}  // extern "C"
