#include "csrc/base/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

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
  const double number = strtod(value, &end);
  int shift = 0;
  switch (*end) {
    case 'k':
    case 'K':
      shift = 10;
      ++end;
      break;
    case 'm':
    case 'M':
      shift = 20;
      ++end;
      break;
    case 'g':
    case 'G':
      shift = 30;
      ++end;
      break;
    case 't':
    case 'T':
      shift = 40;
      ++end;
      break;
    default:
      break;
  }
  if (*end == 'i') ++end;
  if (*end == 'B' || *end == 'b') ++end;
  if (errno || *end || end == value || !(number > 0) || number > 1e15) {
    complain(name, value, "a size such as 512M or 16G");
    return fallback;
  }
  return uint64_t(number * double(1ull << shift));
}

bool env_flag(const char* name) {
  const char* value = raw(name);
  if (!value) return false;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (!strcasecmp(value, yes)) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (!strcasecmp(value, no)) return false;
  complain(name, value, "one of 1, 0, true, false, yes, no, on, off");
  return false;
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

}  // namespace npu
