/* export.h - marks the functions that libmonarch.so exports to Python. */
#ifndef MONARCH_EXPORT_H
#define MONARCH_EXPORT_H

#if defined(__GNUC__)
#define MONARCH_API __attribute__((visibility("default")))
#endif

#endif
