// Every way to run work under every condition: the right result or an error
// with a code and a text, and the next launch gives the right result.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <utility>

#include "tests/cpp/check.h"
#include "tests/cpp/states/conditions.h"
#include "tests/cpp/states/ways.h"

namespace npu::states {
namespace {

using On = Condition::On;

constexpr Condition conditions[] = {
    {"DriverReturnsLate", alone<driver_returns_late>, On::kLateDriver},
    {"DriverIsBusyForAWhile", alone<driver_is_busy_for_a_while>,
     On::kLateDriver},
    {"DriverIsBusyUntilAStop", alone<driver_is_busy_until_a_stop>,
     On::kLateDriver},
    {"DriverRefusesWithAKnownCode", alone<driver_refuses_with_a_known_code>,
     On::kLateDriver},
    {"DriverRefusesWithAnUnknownCode",
     alone<driver_refuses_with_an_unknown_code>, On::kLateDriver},
    {"DriverReportsAFailureWithoutACode",
     alone<driver_reports_a_failure_without_a_code>, On::kLateDriver},
    {"DriverNeverReportsTheEnd", alone<driver_never_reports_the_end>,
     On::kLateDriver},
    {"WorkFailsWithAKnownCode", alone<work_fails_with_a_known_code>},
    {"WorkFailsWithAnUnknownCode", alone<work_fails_with_an_unknown_code>},
    {"WorkFailsWithATextWithoutAnEnd",
     alone<work_fails_with_a_text_without_an_end>},
    {"NoThread", alone<no_thread>},
    {"NoMemoryForArguments", alone<no_memory_for_arguments, 40>},
    {"NoMemoryAtAnyPoint", no_memory_at_any_point},
    {"NoMemoryWhileItFails", no_memory_while_it_fails},
    {"NoDeviceMemory", alone<no_device_memory>},
    {"DeviceMemoryInUse", alone<device_memory_in_use>},
    {"DeviceStoppedInTheMiddle", alone<device_stopped_in_the_middle>},
    {"ExitInTheMiddle", exit_in_the_middle},
    {"ExitAfterAStop", exit_after_a_stop, On::kLateDriver},
};
constexpr size_t kConditions = std::size(conditions);

// The cells that do not exist.
constexpr struct {
  const char *way, *condition, *reason;
} absent[] = {
    {"InlineStream", "DeviceMemoryInUse",
     "whoever frees memory does so after the launch, which returns when the "
     "work is done"},
};

const char* why_absent(const Way& way, const Condition& condition) {
  for (const auto& cell : absent)
    if (!strcmp(cell.way, way.name) && !strcmp(cell.condition, condition.name))
      return cell.reason;
  const char* const name = getenv("NPU_DRIVER");
  const bool late = name && strstr(name, "by_hand");
  if (condition.on == On::kLateDriver && !late)
    return "this driver's launch() returns when the task is done";
  return nullptr;
}

template <size_t I>
void run_cell() {
  conditions[I % kConditions].run(ways[I / kConditions]);
}

template <size_t I>
void add_cell() {
  const Way& way = ways[I / kConditions];
  const Condition& condition = conditions[I % kConditions];
  if (why_absent(way, condition)) return;
  static check::Test test{way.name, condition.name, run_cell<I>};
  check::add(test);
}

template <size_t... I>
int add_cells(std::index_sequence<I...>) {
  (add_cell<I>(), ...);
  return 0;
}

[[maybe_unused]] const int added =
    add_cells(std::make_index_sequence<kWays * kConditions>());

TEST(Matrix, NamesTheCellsThatDoNotExist) {
  for (const Way& way : ways)
    for (const Condition& condition : conditions)
      if (const char* const reason = why_absent(way, condition))
        printf("absent %s.%s: %s\n", way.name, condition.name, reason);
  size_t named = 0;
  for (const auto& cell : absent)
    for (const Way& way : ways)
      for (const Condition& condition : conditions)
        named += !strcmp(cell.way, way.name) &&
                 !strcmp(cell.condition, condition.name);
  EXPECT_EQ(named, std::size(absent));
}

}  // namespace
}  // namespace npu::states
