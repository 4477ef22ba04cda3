#include "csrc/driver/emulated/spec.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "csrc/base/env.h"

namespace npu {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& found,
                         const char* expected) {
  throw std::runtime_error("npu_dispatch: NPU_EMULATED: " + key + "='" + found +
                           "': expected " + expected);
}

// Where the keys of one kind are kept.
template <typename T>
using Places = std::initializer_list<std::pair<const char*, T*>>;

// Reads the value of `key` if it is among `places`.
template <typename T, typename Valid>
bool take(const std::string& key, const std::string& text, Places<T> places,
          const char* expected, Valid valid) {
  for (const auto& [name, place] : places) {
    if (key != name) continue;
    char* end;
    const double value = strtod(text.c_str(), &end);
    if (text.empty() || *end || !std::isfinite(value) || !valid(value))
      refuse(key, text, expected);
    *place = T(value);
    return true;
  }
  return false;
}

void set(EmulatedSpec& s, const std::string& key, const std::string& text) {
  const auto part = [&s](Arithmetic a) { return &s.of_peak[size_t(a)]; };
  const bool known =
      take<double>(key, text,
                   {{"memory", &s.memory},
                    {"bandwidth", &s.bandwidth},
                    {"link", &s.link},
                    {"fp64", &s.fp64},
                    {"fp32", &s.fp32},
                    {"fp16", &s.fp16},
                    {"int8", &s.int8},
                    {"convolution", part(Arithmetic::kConvolution)},
                    {"recurrent", part(Arithmetic::kRecurrence)}},
                   "a number above 0", [](double v) { return v > 0; }) ||
      take<double>(key, text,
                   {{"launch_ns", &s.launch_ns},
                    {"kernel_ns", &s.kernel_ns},
                    {"complete_ns", &s.complete_ns},
                    {"copy_ns", &s.copy_ns}},
                   "a number, not below 0", [](double v) { return v >= 0; }) ||
      take<int>(key, text,
                {{"concurrency", &s.concurrency},
                 {"copy_engines", &s.copy_engines},
                 {"queue_room", &s.queue_room}},
                "a whole number from 1 to 65536",
                [](double v) {
                  return v >= 1 && v <= 65536 && v == std::floor(v);
                }) ||
      take<int>(key, text, {{"overcommit", &s.overcommit}}, "0 or 1",
                [](double v) { return v == 0 || v == 1; });
  if (!known) refuse(key, text, "a key that npu_dispatch knows (docs/plan.md)");
}

}  // namespace

double EmulatedSpec::flops_of(int itemsize) const {
  return itemsize >= 8   ? fp64
         : itemsize == 4 ? fp32
         : itemsize == 2 ? fp16
                         : int8;
}

EmulatedSpec parse_emulated_spec(const std::string& text) {
  EmulatedSpec spec;
  std::string lines = text;
  std::replace(lines.begin(), lines.end(), ';', '\n');
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const size_t at = line.find('=');
    if (at == std::string::npos) refuse(line, "", "key=value");
    set(spec, line.substr(0, at), line.substr(at + 1));
  }
  return spec;
}

const EmulatedSpec& emulated_spec() {
  static const EmulatedSpec spec =
      parse_emulated_spec(env_string("NPU_EMULATED", ""));
  return spec;
}

TaskCost cost_of(const EmulatedSpec& spec, const TaskWork& work) {
  using Engine = DeviceModel::Engine;
  if (work.kind == WorkKind::kCopy)
    return {Engine::kCopy, uint64_t(spec.copy_ns),
            uint64_t(work.bytes / spec.link)};
  if (work.kind == WorkKind::kSleep)
    return {Engine::kCompute, work.sleep_ns, 0};
  const double peak =
      spec.flops_of(work.itemsize) * spec.of_peak[size_t(work.arithmetic)];
  return {Engine::kCompute, uint64_t(spec.kernel_ns),
          uint64_t(std::max(work.flops / peak, work.bytes / spec.bandwidth))};
}

}  // namespace npu
