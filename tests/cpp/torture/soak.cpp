// Tasks that do nothing, by the thousand million: `soak SECONDS`, with
// NPU_DRIVER=null. Streams come and go, one or two threads submit, some
// arguments are long, queues run full. Prints a line of JSON; fails where a
// task is lost, or where memory, descriptors or threads grow.
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

void submit_all(Stream& stream, uint64_t n, uint32_t words) {
  for (uint64_t i = 0; i < n; ++i) submit(stream, kNothing, {i}, words);
}

long entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

struct Footprint {
  long pages = 0;
  long files = entries("/proc/self/fd");
  long threads = entries("/proc/self/task");

  Footprint() {
    long of_address_space;
    std::ifstream("/proc/self/statm") >> of_address_space >> pages;
  }
};

// Starts a short-lived stream, fills it beyond its queue, and stops it.
uint64_t passing_stream(uint64_t round) {
  Stream stream(0, int64_t(2000 + round % 64), 0, StreamMode::kQueued, 256);
  const uint64_t n = 100 + round % 1000;
  submit_all(stream, n, round % 7 ? 3 : 500);
  if (round % 2) drain(stream);
  stream.stop();
  return stream.retired().value() == n ? n : 0;
}

int run(double seconds) {
  // A single thread submits to the first, which is the fast path; several to
  // the second.
  Stream &lasting = *find_stream(0, 0), &shared = *find_stream(0, 3 << 5);
  const uint64_t begun = now_ns();
  const auto end = begun + uint64_t(seconds * 1e9);
  uint64_t lost = 0, passed = 0, wanted = 0;
  Footprint warm;
  constexpr uint64_t kBatch = 1 << 20;
  for (uint64_t round = 0; round < 8 || now_ns() < end; ++round) {
    if (round == 4) warm = Footprint();
    submit_all(lasting, kBatch, 3);
    std::thread second([&] { submit_all(shared, kBatch / 32, 3); });
    submit_all(shared, kBatch / 32, 40);
    second.join();
    wanted += kBatch + kBatch / 16;
    drain(lasting);
    drain(shared);
    const uint64_t n = passing_stream(round);
    if (!n) ++lost;
    passed += n;
  }
  if (lasting.retired().value() + shared.retired().value() != wanted) ++lost;
  const Footprint last;
  // A launcher that ends and its stack may still be there.
  const bool grown = last.pages > warm.pages + 4096 ||
                     last.files > warm.files || last.threads > warm.threads + 1;
  const double took = double(now_ns() - begun) / 1e9;
  printf(
      "{\"tasks\": %llu, \"seconds\": %.1f, \"per_second\": %.0f, \"lost\": "
      "%llu, \"pages\": [%ld, %ld], \"descriptors\": [%ld, %ld], "
      "\"threads\": [%ld, %ld], \"grown\": %s}\n",
      (unsigned long long)(wanted + passed), took,
      double(wanted + passed) / took, (unsigned long long)lost, warm.pages,
      last.pages, warm.files, last.files, warm.threads, last.threads,
      grown ? "true" : "false");
  return lost || grown;
}

}  // namespace
}  // namespace npu

int main(int argc, char** argv) {
  return npu::run(argc > 1 ? atof(argv[1]) : 10);
}
