#include "csrc/base/per_thread.h"

#include <limits.h>
#include <pthread.h>

#include <new>

namespace npu::detail {
namespace {

struct Variables {
  OfThread* latest;
  int rounds;
};
constinit thread_local Variables variables_{};

extern "C" void end_of_thread(void*);

pthread_key_t thread_end() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, &end_of_thread)) throw std::bad_alloc();
    return made;
  }();
  return key;
}

// The last round is that of the compiler's sanitizers, which end there what
// they know of the thread.
constexpr int kRounds = PTHREAD_DESTRUCTOR_ITERATIONS - 1;

// Called after the destructors of thread_local objects, in the same round as
// the destructors of other keys. A key that has a value again gets another
// round, up to a limit.
extern "C" void end_of_thread(void*) {
  if (++variables_.rounds < kRounds &&
      !pthread_setspecific(thread_end(), &variables_))
    return;
  // A destructor may make variables.
  while (OfThread* const last = variables_.latest) {
    variables_.latest = last->earlier;
    last->end(last);
  }
}

}  // namespace

void destroy_at_thread_end(OfThread* variable) {
  if (!variables_.latest && pthread_setspecific(thread_end(), &variables_)) {
    // There is no memory for the key's value.
    variable->end(variable);
    throw std::bad_alloc();
  }
  variable->earlier = variables_.latest;
  variables_.latest = variable;
}

}  // namespace npu::detail
