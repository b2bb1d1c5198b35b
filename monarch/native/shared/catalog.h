/* catalog.h - what the Catalog and the flags say of a File number. */
#ifndef MONARCH_LOOKUP_H
#define MONARCH_LOOKUP_H

#include <stdbool.h>

#include "index.h"

const struct entry *lookup_entry(const struct catalog *cat, uint32_t file,
                                 uint32_t *root);
const struct index *lookup_block(const struct catalog *cat, uint32_t root);
void lookup_name(const struct catalog *cat, uint32_t file,
                 char out[REPLICA_NAME_BYTES + 1]);
bool lookup_written(const struct flags *flags, uint32_t root, uint32_t file);

#endif
