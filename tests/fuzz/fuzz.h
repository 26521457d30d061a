/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer defines: libFuzzer's entry, which fuzz_main.c calls as well.
 *
 * A fuzzer takes any bytes, returns 0, leaks nothing, and keeps no state from one input to the
 * next. What it finds it says by LP_ASSERT, so that both kinds of build notice.
 */
#ifndef LP_TESTS_FUZZ_FUZZ_H
#define LP_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#endif
