// The driver is late, busy, refuses, or never answers.
#include <limits.h>

#include <string>

#include "csrc/stats/layout.h"
#include "tests/cpp/states/conditions.h"
#include "tests/drivers/by_hand.h"

namespace npu::states {
namespace {

constexpr size_t kRoom = 1000;
// What is no npu_code. NPU_BUSY is a code of submit() alone.
constexpr int kUnknown[] = {-32, INT_MIN, NPU_LINALG_ERROR + 1, kErrorCodes,
                            INT_MAX};

std::string says(int unknown) {
  return "(it returned " + std::to_string(unknown) + ", which is no npu_code)";
}

void expect_not_done(Cell& cell) {
  // An inline stream counts a task when it is done.
  if (cell.way.queued) EXPECT_TRUE(!cell.stream().idle());
  if (cell.way.waits) EXPECT_EQ(cell.launched.as.load(), As::kLeft);
  cell.expect_nothing_ran();
}

// Launches what the driver is to refuse, and lets nothing run.
void refuse(Cell& cell, int outcome, int code, const std::string& text) {
  by_hand::set_refusal(outcome);
  cell.start();
  cell.settle();
  by_hand::set_refusal(NPU_OK);
  cell.expect_error(code, text);
  cell.expect_nothing_ran();
  cell.recover();
}

}  // namespace

void driver_returns_late(Cell& cell) {
  cell.behind_a_kernel = true;
  cell.start();
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
  expect_not_done(cell);
  const Device device;
  cell.settle();
  cell.expect_result();
}

void driver_is_busy_for_a_while(Cell& cell) {
  cell.behind_a_kernel = true;
  by_hand::set_room(0);
  cell.start();
  EXPECT_TRUE(by_hand::wait_until_busy(3) >= 3);
  expect_not_done(cell);
  by_hand::set_room(1);
  const Device device;
  cell.settle();
  cell.expect_result();
}

void driver_is_busy_until_a_stop(Cell& cell) {
  cell.behind_a_kernel = true;
  by_hand::set_room(0);
  cell.start();
  EXPECT_TRUE(by_hand::wait_until_busy(3) >= 3);
  cell.stream().force_stop();
  cell.settle();
  by_hand::set_room(kRoom);
  cell.expect_error(NPU_ERROR, "FORCE STOP");
  cell.expect_nothing_ran();
  cell.recover();
}

void driver_refuses_with_a_known_code(Cell& cell) {
  cell.behind_a_kernel = true;
  for (int code = NPU_ERROR; code <= NPU_LINALG_ERROR; ++code)
    refuse(cell, code, code, "refused");
}

void driver_refuses_with_an_unknown_code(Cell& cell) {
  cell.behind_a_kernel = true;
  for (const int code : kUnknown) refuse(cell, code, NPU_ERROR, says(code));
}

// A failure that says NPU_OK, or NPU_BUSY, is one.
void driver_reports_a_failure_without_a_code(Cell& cell) {
  cell.behind_a_kernel = true;
  for (const int code : {int(NPU_OK), int(NPU_BUSY)}) {
    cell.start();
    EXPECT_EQ(by_hand::wait_until_started(1), 1);
    by_hand::fail("lightning", code);
    cell.settle();
    cell.expect_error(NPU_ERROR, "lightning");
    cell.expect_nothing_ran();
    cell.recover();
  }
}

void driver_never_reports_the_end(Cell& cell) {
  cell.behind_a_kernel = true;
  cell.start();
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
  cell.stream().force_stop();
  cell.settle();
  EXPECT_EQ(by_hand::in_flight(), 0);
  cell.expect_error(NPU_ERROR, "FORCE STOP");
  cell.expect_nothing_ran();
  cell.recover();
}

void work_fails_with_a_known_code(Cell& cell) {
  for (int code = NPU_ERROR; code <= NPU_LINALG_ERROR; ++code) {
    cell.code = code;
    const Device device;
    cell.start();
    cell.settle();
    cell.expect_error(code, "asked to fail");
    cell.expect_nothing_ran();
    cell.recover();
  }
}

void work_fails_with_an_unknown_code(Cell& cell) {
  const Device device;
  const auto fail = [&](int code) {
    cell.code = code;
    cell.start();
    cell.settle();
    cell.expect_error(NPU_ERROR, "asked to fail");
    cell.expect_error(NPU_ERROR, says(code));
    cell.expect_nothing_ran();
    cell.recover();
  };
  for (const int code : kUnknown) fail(code);
  fail(NPU_BUSY);
}

void work_fails_with_a_text_without_an_end(Cell& cell) {
  const Device device;
  cell.code = NPU_VALUE_ERROR;
  cell.text_has_an_end = false;
  cell.start();
  cell.settle();
  cell.expect_error(NPU_VALUE_ERROR, std::string(NPU_MAX_ERROR_TEXT / 2, 'x'));
  cell.recover();
}

}  // namespace npu::states
