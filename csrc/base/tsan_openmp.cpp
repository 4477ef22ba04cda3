// Part of the extension where it is built with TSan, which does not see how
// libgomp orders a team: what its caller wrote before is there for its members,
// and what these wrote is there behind it. The linker puts this in the place of
// GOMP_parallel() in torch's templates and in our own code.
#include <sanitizer/tsan_interface.h>

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
void __real_GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
void __wrap_GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace {

struct Team {
  void (*work)(void*);
  void* context;
};

void run(void* of) {
  Team* const team = static_cast<Team*>(of);
  __tsan_acquire(team);
  team->work(team->context);
  __tsan_release(team);
}

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier)
void __wrap_GOMP_parallel(void (*work)(void*), void* context, unsigned width,
                          unsigned flags) {
  Team team{work, context};
  __tsan_release(&team);
  __real_GOMP_parallel(&run, &team, width, flags);
  __tsan_acquire(&team);
}
