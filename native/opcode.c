/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of an opcode. */
#include "native/opcode.h"

const struct lpi_opcode *lpi_opcode_find(const struct lpi_opcodes *opcodes, uint16_t code)
{
	uint32_t low = 0;
	uint32_t high = opcodes->cnt;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (opcodes->all[mid].code == code)
			return &opcodes->all[mid];
		if (opcodes->all[mid].code < code)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}
