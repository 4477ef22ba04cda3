// Variables of a thread whose types have a destructor.
#pragma once

#include <utility>

namespace npu {

namespace detail {

struct OfThread {
  explicit OfThread(void (*end)(OfThread*)) : end(end) {}
  void (*const end)(OfThread*);
  OfThread* earlier = nullptr;
};

// Has the variable destroyed when the calling thread ends.
void destroy_at_thread_end(OfThread* variable);

}  // namespace detail

// One T for each thread, made when the thread first asks for it. What other
// libraries run at the end of a thread may call operators. A thread_local
// object may have been destroyed by then; these are destroyed after all others,
// and the main thread's never, as the process ends with it. A variable that is
// asked for later still is made anew. Each variable is a type of its own.
template <typename T>
class PerThread {
 public:
  static T& get() {
    if (!value_) [[unlikely]]
      make();
    return *value_;
  }

 private:
  struct Holder : detail::OfThread {
    Holder() : OfThread(&destroy) {}
    T value{};
  };

  static void make() {
    auto* const holder = new Holder;
    value_ = &holder->value;
    detail::destroy_at_thread_end(holder);
  }
  static void destroy(detail::OfThread* holder) {
    value_ = nullptr;
    delete static_cast<Holder*>(holder);
  }

  static inline constinit thread_local T* value_ = nullptr;
};

}  // namespace npu
