/* wait.h - asking the agent for a File, and waiting for it. */
#ifndef MONARCH_WAIT_H
#define MONARCH_WAIT_H

#include "shim/names/attached.h"
#include "shared/presence.h"

bool wait_agent_lives(const struct segments *seg);
bool wait_is_alone(const struct segments *seg);
bool wait_post(const struct segments *seg, uint64_t request, bool calls);
bool wait_put(const struct segments *seg, uint64_t request);
bool wait_pages(const struct segments *seg, uint64_t file, struct page_range range);
bool wait_request(const struct segments *seg, uint64_t file);
enum counter wait_refusal(uint32_t word);
void wait_enter(const struct segments *seg, uint64_t file);
void wait_leave(const struct segments *seg, uint64_t file);
uint32_t wait_ready(const struct segments *seg, uint64_t file, enum counter *why);

#endif
