#include "csrc/graph/capture.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/states/cell.h"

namespace npu::states {
namespace {

// words: Cell*, value
int run_kernel(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  return failure->code = run_work(*reinterpret_cast<Cell*>(words[0]), words[1],
                                  failure->text);
}
constexpr npu_kernel kKernel{run_kernel, "states::kernel", nullptr, 0};

bool launch_kernel(Cell& cell, uint64_t n) {
  if (!submit(cell.stream(), kKernel, {word(&cell), n}, cell.n_words))
    return false;
  cell.want.push_back(n);
  return true;
}

void take_side_stream(Cell& cell) { cell.streams = {&check::side_stream()}; }

void take_inline_stream(Cell& cell) {
  cell.streams = {&next_stream(0, StreamPool::kSyncLaunch)};
}

void take_blocking_stream(Cell& cell) {
  take_side_stream(cell);
  set_launch_blocking(true);
}

// A graph of two streams that append in turn.
struct NoNumbers final : NumberSource {
  Draws reserve(uint64_t) noexcept override { return {0, 0}; }
};

void capture_lanes(Cell& cell) {
  Stream &a = check::side_stream(), &b = check::side_stream();
  cell.streams = {&a, &b};
  const uint64_t at = word(&cell);
  cell.graph.capture_begin(a, 0, CaptureMode::kGlobal);
  // The arguments of a replay are two words for each source of random numbers.
  static char sources[Task::kInlineWords];
  for (uint32_t i = 0; i < cell.n_words / 2 && i < sizeof sources; ++i)
    Capture::get().draw(
        &sources[i], [] { return std::make_unique<NoNumbers>(); }, 1);
  submit(a, kKernel, {at, 1});
  check::join(a, b);
  submit(b, kKernel, {at, 2});
  check::join(b, a);
  submit(a, kKernel, {at, 3});
  cell.graph.capture_end(a);
}

bool launch_lanes(Cell& cell, uint64_t) {
  if (!check::replay(cell.graph, cell.stream())) return false;
  for (uint64_t value : {1, 2, 3}) cell.want.push_back(value);
  return true;
}

// The state of foreign work; the numbers say how it was handed over.
struct Foreign {
  Cell& cell;
  uint64_t value;
};

int run_foreign(void* state, uint64_t, npu_failure& failure) {
  const auto& work = *static_cast<Foreign*>(state);
  return run_work(work.cell, work.value, failure.text);
}
void release_foreign(void* state) {
  auto* const work = static_cast<Foreign*>(state);
  ++work->cell.released;
  delete work;  // a second release is a second delete
}

// As Python's work is run: under the GIL, and what it throws is described.
int run_python(void* state, uint64_t, npu_failure& failure) {
  const check::Gil held;
  try {
    const auto& work = *static_cast<Foreign*>(state);
    const int code = run_work(work.cell, work.value, failure.text);
    if (code != NPU_OK) throw code;
    return NPU_OK;
  } catch (int code) {
    return failure.code = code;
  }
}
void release_python(void* state) {
  const check::Gil held;
  release_foreign(state);
}

bool launch_foreign(Cell& cell, uint64_t n, ForeignWork work) {
  if (cell.behind_a_kernel) {
    if (!submit(cell.stream(), kKernel, {word(&cell), n})) return false;
    cell.want.push_back(n);
  }
  const uint64_t value = 100 + n;
  for (uint32_t i = 1; i < cell.n_words; ++i)
    work.views.push_back({&cell, {1}, {1}, 1, NPU_READ});
  work.state = new Foreign{cell, value};
  ++cell.handed_over;
  if (!submit_foreign(cell.stream(), std::move(work))) return false;
  cell.want.push_back(value);
  return true;
}

bool launch_c(Cell& cell, uint64_t n) {
  return launch_foreign(
      cell, n, {"states::foreign", run_foreign, release_foreign, nullptr, {}});
}

bool launch_python(Cell& cell, uint64_t n) {
  struct NoGil {
    ~NoGil() {
      if (held) check::Gil::reacquire(held);
    }
    void* const held = check::Gil::release();
  } const released;
  return launch_foreign(
      cell, n, {"states::python", run_python, release_python, nullptr, {}});
}

// A kernel of generated code: words alone, and ranges whose lengths they hold.
// words: Cell*, value, address, length
int fill_range(const uint64_t* words, char* error) {
  Cell& cell = *reinterpret_cast<Cell*>(words[0]);
  auto* const range = reinterpret_cast<uint64_t*>(words[2]);
  for (uint64_t i = 0; i < words[3]; ++i) range[i] = words[1];
  return run_work(cell, range[words[3] - 1], error);
}
int run_words(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  return failure->code = fill_range(words, failure->text);
}
constexpr npu_view kRange{nullptr, nullptr, 3, sizeof(uint64_t), 2, NPU_WRITE};
constexpr npu_kernel kWords{run_words, "states::words", &kRange, 1};

bool launch_words(Cell& cell, uint64_t n) {
  if (!submit(cell.stream(), kWords,
              {word(&cell), n, word(cell.buffer.data()), cell.buffer.size()},
              cell.n_words))
    return false;
  cell.want.push_back(n);
  return true;
}

}  // namespace

const Way ways[] = {
    {.name = "QueuedTask",
     .prepare = take_side_stream,
     .launch = launch_kernel},
    {.name = "InlineStream",
     .prepare = take_inline_stream,
     .launch = launch_kernel,
     .waits = true,
     .queued = false},
    {.name = "LaunchBlocking",
     .prepare = take_blocking_stream,
     .launch = launch_kernel,
     .waits = true},
    {.name = "GraphLane", .prepare = capture_lanes, .launch = launch_lanes},
    {.name = "ForeignPython",
     .prepare = take_side_stream,
     .launch = launch_python,
     .gil = true},
    {
        .name = "ForeignC",
        .prepare = take_side_stream,
        .launch = launch_c,
    },
    {.name = "WordKernel", .prepare = take_side_stream, .launch = launch_words},
};

}  // namespace npu::states
