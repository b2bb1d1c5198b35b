/* descriptor.h - descriptors of ours, above those that belong to the program. */
#ifndef MONARCH_DESCRIPTOR_H
#define MONARCH_DESCRIPTOR_H

int descriptor_keep(int fd);
void descriptor_close_from(int first, const int *kept, int count);

#endif
