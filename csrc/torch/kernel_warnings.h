// Carries the warnings of kernels to Python. A launcher has nobody to tell
// them: they are kept until a thread of the program waits for a device or calls
// an operator for the first time, and come from there as if they were its own.
#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace npu {

// Gives this thread's warnings to those who wait, if it is a launcher. Called
// before each kernel, and does something in a thread's first.
void hear_kernel_warnings();

// Warns of what was heard since the last call, on this thread.
void tell_kernel_warnings();

// The first call of an operator may ask its shape function, run its kernel on
// zeros and run the kernel itself. Each warns of the same things, of which the
// program hears once.
class FirstCallWarnings final : public c10::WarningHandler {
 public:
  FirstCallWarnings();
  ~FirstCallWarnings() override;
  FirstCallWarnings(const FirstCallWarnings&) = delete;

  // From here on the same things may be heard another time.
  void again();
  // From here on the kernel runs, here or on a launcher.
  void runs();

  void process(const c10::Warning& warning) override;

 private:
  c10::WarningHandler* const above_;
  c10::WarningUtils::WarningHandlerGuard guard_;
  bool runs_ = false;
  std::vector<c10::Warning> heard_;
  size_t known_ = 0;  // the first ones, which were not heard again yet
};

}  // namespace npu
