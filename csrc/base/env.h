// Reads the environment. Every variable that the core understands is read by
// one of these functions, so that a bad value is reported in one manner.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace npu {

// The value of `name`, or `fallback` when unset or empty.
std::string env_string(const char* name, const char* fallback);

// The value of `name` as an integer within [low, high]. Anything else is
// reported on stderr, once per call, and `fallback` is used.
int64_t env_int(const char* name, int64_t fallback, int64_t low, int64_t high);

// A number of bytes with an optional K, M, G or T suffix (powers of 1024).
uint64_t env_bytes(const char* name, uint64_t fallback);

// "1", "true", "yes", "on" against "0", "false", "no", "off" and unset.
bool env_flag(const char* name);

// The index in `choices` of the value of `name`, whatever its case; 0 where it
// is unset. Anything else is reported on stderr, and 0 is returned.
int env_choice(const char* name, std::initializer_list<const char*> choices);

}  // namespace npu
