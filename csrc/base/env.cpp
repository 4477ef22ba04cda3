#include "csrc/base/env.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <string_view>

namespace npu {
namespace {

void complain(const char* name, const char* value, const char* wanted) {
  fprintf(stderr, "npu_dispatch: %s=%s is not %s; using the default\n", name,
          value, wanted);
}

const char* raw(const char* name) {
  const char* value = getenv(name);
  return value && *value ? value : nullptr;
}

}  // namespace

std::string env_string(const char* name, const char* fallback) {
  const char* value = raw(name);
  return value ? value : fallback;
}

int64_t env_int(const char* name, int64_t fallback, int64_t low, int64_t high) {
  const char* value = raw(name);
  if (!value) return fallback;
  char* end;
  errno = 0;
  const long long number = strtoll(value, &end, 10);
  if (errno || *end || number < low || number > high) {
    const std::string wanted = "an integer from " + std::to_string(low) +
                               " to " + std::to_string(high);
    complain(name, value, wanted.c_str());
    return fallback;
  }
  return number;
}

uint64_t env_bytes(const char* name, uint64_t fallback) {
  const char* value = raw(name);
  if (!value) return fallback;
  char* end;
  errno = 0;
  double number = strtod(value, &end);
  constexpr std::string_view kUnits = "kmgt";
  const char letter = char(tolower(static_cast<unsigned char>(*end)));
  if (const size_t unit = kUnits.find(letter); unit != kUnits.npos) {
    number *= double(uint64_t{1} << 10 * (unit + 1));
    ++end;
  }
  if (*end == 'i') ++end;
  if (*end == 'B' || *end == 'b') ++end;
  if (errno || *end || end == value || !(number > 0) || number > 1e18) {
    complain(name, value, "a size such as 512M or 16G");
    return fallback;
  }
  return uint64_t(number);
}

int env_choice(const char* name, std::initializer_list<const char*> choices) {
  const char* value = raw(name);
  if (!value) return 0;
  std::string wanted = "one of";
  int number = 0;
  for (const char* choice : choices) {
    if (!strcasecmp(value, choice)) return number;
    wanted += std::string(number++ ? ", " : " ") + choice;
  }
  complain(name, value, wanted.c_str());
  return 0;
}

bool env_flag(const char* name) {
  return env_choice(name,
                    {"0", "false", "no", "off", "1", "true", "yes", "on"}) >= 4;
}

}  // namespace npu
