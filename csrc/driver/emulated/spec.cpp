#include "csrc/driver/emulated/spec.h"

#include <stdlib.h>

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace npu {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& found,
                         const char* expected) {
  throw std::runtime_error("npu_dispatch: NPU_EMULATED: " + key + "='" + found +
                           "': expected " + expected);
}

struct Number {
  const char* key;
  double EmulatedSpec::*to;
  bool may_be_zero;
};
constexpr Number kNumbers[] = {
    {"memory", &EmulatedSpec::memory, false},
    {"bandwidth", &EmulatedSpec::bandwidth, false},
    {"cache", &EmulatedSpec::cache, true},
    {"cache_bandwidth", &EmulatedSpec::cache_bandwidth, false},
    {"link", &EmulatedSpec::link, false},
    {"fp64", &EmulatedSpec::fp64, false},
    {"fp32", &EmulatedSpec::fp32, false},
    {"fp16", &EmulatedSpec::fp16, false},
    {"int8", &EmulatedSpec::int8, false},
    {"convolution", &EmulatedSpec::convolution, false},
    {"depthwise", &EmulatedSpec::depthwise, false},
    {"attention", &EmulatedSpec::attention, false},
    {"recurrent", &EmulatedSpec::recurrent, false},
    {"function", &EmulatedSpec::function, false},
    {"reduction", &EmulatedSpec::reduction, false},
    {"gather", &EmulatedSpec::gather, false},
    {"launch_ns", &EmulatedSpec::launch_ns, true},
    {"kernel_ns", &EmulatedSpec::kernel_ns, true},
    {"step_ns", &EmulatedSpec::step_ns, true},
    {"complete_ns", &EmulatedSpec::complete_ns, true},
    {"copy_ns", &EmulatedSpec::copy_ns, true},
};

struct Count {
  const char* key;
  int EmulatedSpec::*to;
};
constexpr Count kCounts[] = {
    {"concurrency", &EmulatedSpec::concurrency},
    {"copy_engines", &EmulatedSpec::copy_engines},
    {"queue_room", &EmulatedSpec::queue_room},
};

double number(const std::string& key, const std::string& text,
              const char* expected) {
  char* end;
  const double value = strtod(text.c_str(), &end);
  if (text.empty() || *end || !std::isfinite(value))
    refuse(key, text, expected);
  return value;
}

void set(EmulatedSpec& spec, const std::string& key, const std::string& text) {
  if (key == "name") {
    spec.name = text;
    return;
  }
  if (key == "overcommit") {
    if (text != "0" && text != "1") refuse(key, text, "0 or 1");
    spec.overcommits = text == "1";
    return;
  }
  if (key == "compute") {
    if (text != "none" && text != "real") refuse(key, text, "none or real");
    spec.computes = text == "real";
    return;
  }
  for (const Number& n : kNumbers) {
    if (key != n.key) continue;
    const char* expected =
        n.may_be_zero ? "a number, not below 0" : "a number above 0";
    const double value = number(key, text, expected);
    if (value < 0 || (value == 0 && !n.may_be_zero))
      refuse(key, text, expected);
    spec.*n.to = value;
    return;
  }
  for (const Count& c : kCounts) {
    if (key != c.key) continue;
    const char* expected = "a whole number from 1 to 65536";
    const double value = number(key, text, expected);
    if (value < 1 || value > 65536 || value != std::floor(value))
      refuse(key, text, expected);
    spec.*c.to = int(value);
    return;
  }
  refuse(key, text, "a key that npu_dispatch knows (docs/plan.md)");
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
  std::string line;
  std::string lines = text;
  for (char& c : lines)
    if (c == ';') c = '\n';
  std::istringstream in(lines);
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    const size_t at = line.find('=');
    if (at == std::string::npos) refuse(line, "", "key=value");
    set(spec, line.substr(0, at), line.substr(at + 1));
  }
  return spec;
}

}  // namespace npu
