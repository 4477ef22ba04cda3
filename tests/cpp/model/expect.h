// Checks what an exploration finds, and reports how long it took.
#pragma once

#include <stdio.h>

#include "tests/cpp/check.h"
#include "tests/cpp/model/model.h"

namespace npu::model {

inline void expect_correct(const char* name, const Outcome& outcome) {
  printf("       %s: %llu executions\n", name,
         static_cast<unsigned long long>(outcome.executions));
  EXPECT_EQ(outcome.violation, "");
}

inline void expect_found(const char* name, const Outcome& outcome) {
  printf("       %s: found at execution %llu: %s\n", name,
         static_cast<unsigned long long>(outcome.executions),
         outcome.violation.c_str());
  EXPECT_TRUE(outcome.violation != "");
}

}  // namespace npu::model
