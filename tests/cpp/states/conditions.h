// The conditions under which work is launched, and where there are none.
#pragma once

#include "tests/cpp/states/cell.h"

namespace npu::states {

struct Condition {
  enum class On { kAnyDriver, kLateDriver };
  const char* name;
  void (*run)(const Way&);
  On on = On::kAnyDriver;
};

// Of the driver.
void driver_returns_late(Cell&);
void driver_is_busy_for_a_while(Cell&);
void driver_is_busy_until_a_stop(Cell&);
void driver_refuses_with_a_known_code(Cell&);
void driver_refuses_with_an_unknown_code(Cell&);
void driver_reports_a_failure_without_a_code(Cell&);
void driver_never_reports_the_end(Cell&);
// Of the work.
void work_fails_with_a_known_code(Cell&);
void work_fails_with_an_unknown_code(Cell&);
void work_fails_with_a_text_without_an_end(Cell&);
// Of the host: threads and memory.
void no_thread(Cell&);
void no_memory_for_arguments(Cell&);
void no_memory_at_any_point(const Way&);
void no_memory_while_it_fails(const Way&);
void no_device_memory(Cell&);
void device_memory_in_use(Cell&);
// Of the end.
void device_stopped_in_the_middle(Cell&);
void exit_in_the_middle(const Way&);
void exit_after_a_stop(const Way&);

}  // namespace npu::states
