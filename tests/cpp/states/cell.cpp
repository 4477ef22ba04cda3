#include "tests/cpp/states/cell.h"
#include "csrc/driver/driver.h"
#include "tests/cpp/no_memory.h"
#include "tests/drivers/by_hand.h"

namespace npu::states {
namespace {

constexpr size_t kMostLaunches = 64;

void attempt(Cell& cell, uint64_t n, Launched& launched) {
  launched.as = As::kLeft;
  As as = As::kThrew;
  try {
    const check::Gil held(cell.way.gil);
    as = cell.way.launch(cell, n) ? As::kTaken : As::kRefused;
  } catch (const std::exception& e) {
    snprintf(launched.text, sizeof launched.text, "%s", e.what());
  }
  launched.as = as;
}

}  // namespace

bool is_late() { return driver().submit; }

Device::Device() {
  if (!is_late()) return;
  thread_ = std::thread([this] {
    check::always_gets_memory();
    while (!ends_) {
      if (by_hand::in_flight())
        by_hand::end_here(1);
      else
        std::this_thread::yield();
    }
  });
}

Device::~Device() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

Cell::Cell(const Way& way, uint32_t n_words) : way(way), n_words(n_words) {
  want.reserve(kMostLaunches);
  got.reserve(kMostLaunches);
  if (way.gil) hooks = {check::Gil::release, check::Gil::reacquire};
  way.prepare(*this);
}

Cell::~Cell() {
  if (caller_.joinable()) caller_.join();
}

void Cell::launch() { attempt(*this, ++launches_, launched); }

void Cell::start(int times) {
  launched.as = As::kLeft;
  caller_ = std::thread([this, times, first = launches_ + 1] {
    attempt(*this, first, launched);
    for (int more = 1; more < times; ++more) {
      Launched behind;
      attempt(*this, first + uint64_t(more), behind);
    }
  });
  launches_ += uint64_t(times);
}

void Cell::settle() {
  if (caller_.joinable()) caller_.join();
  const check::Gil held(way.gil);
  for (Stream* s : streams) check::drain(*s);
  EXPECT_EQ(handed_over.load(), released.load());
}

void Cell::expect_result() {
  EXPECT_EQ(launched.as.load(), As::kTaken);
  EXPECT_EQ(std::string(launched.text), "");
  EXPECT_TRUE(!want.empty());
  EXPECT_TRUE(got == want);
  for (Stream* s : streams) EXPECT_TRUE(!s->failed());
}

void Cell::expect_error(int code, const std::string& text) {
  const auto error = stream().error();
  EXPECT_TRUE(error != nullptr);
  for (Stream* s : streams) EXPECT_TRUE(s->failed());
  if (!error) return;
  EXPECT_EQ(error->code, code);
  if (error->message().find(text) == std::string::npos)
    check::fail(__FILE__, __LINE__, error->message() + " lacks: " + text);
}

void Cell::recover() {
  launch();
  EXPECT_EQ(launched.as.load(), As::kRefused);
  {
    const check::Gil held(way.gil);
    for (Stream* s : streams) s->clear_error();
  }
  launch_again();
}

void Cell::launch_again() {
  code = NPU_OK;
  text_has_an_end = true;
  gate = nullptr;
  launched.text[0] = 0;
  want.clear();
  got.clear();
  const Device device;
  start();
  settle();
  expect_result();
  if (is_late()) EXPECT_EQ(by_hand::in_flight(), 0);
  want.clear();
  got.clear();
}

void Cell::leave(bool returns) { returns ? caller_.join() : caller_.detach(); }

int run_work(Cell& cell, uint64_t value, char* text) {
  if (cell.gate) cell.gate->pass();
  if (cell.code != NPU_OK) {
    snprintf(text, NPU_MAX_ERROR_TEXT,
             "asked to fail, with a text that needs memory of its own");
    if (!cell.text_has_an_end) memset(text, 'x', NPU_MAX_ERROR_TEXT);
    return cell.code;
  }
  cell.got.push_back(value);
  ++cell.runs;
  return NPU_OK;
}

check::Ended in_process(const Way& way, const Body& body, uint32_t n_words) {
  return check::in_child([&] {
    alarm(kCellSeconds);
    // It lives as long as the process: its threads may outlast the body.
    static Cell* const cell = new Cell(way, n_words);
    body(*cell);
    return 0;
  });
}

void expect_clean(const check::Ended& ended, const std::string& where) {
  if (ended.code == 0 && ended.err.empty()) return;
  check::fail(where.c_str(), ended.code,
              ended.code == -SIGALRM ? "hangs" : ended.err);
}

}  // namespace npu::states
