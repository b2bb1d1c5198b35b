/* job.h - the names of the job and node of a process, and the user's configuration file, as its
 * launch determines them. One implementation serves the launcher and, by libmonarch.so, Python:
 * functions that begin with monarch_ are called from there. */
#ifndef MONARCH_JOB_H
#define MONARCH_JOB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_API __attribute__((visibility("default")))

/* Bytes of a job or node name. */
enum { NAME_BYTES_MAX = 64 };

/* -- names.c -- */

#define FINGERPRINT_EMPTY UINT64_C(0xcbf29ce484222325)

uint64_t fingerprint_bytes(uint64_t print, const void *bytes, size_t size);
uint64_t fingerprint_text(uint64_t print, const char *text);
uint64_t fingerprint_number(uint64_t print, uint64_t number);

const char *env_value(const char *const *envp, const char *name);
JOB_API void monarch_clean_name(const char *from, char to[NAME_BYTES_MAX + 1]);
JOB_API void monarch_node_name(const char *const *envp, char to[NAME_BYTES_MAX + 1]);
JOB_API int monarch_job_name(const char *const *envp, char to[NAME_BYTES_MAX + 1]);
JOB_API int monarch_launched_by_open_mpi(const char *const *envp);
JOB_API void monarch_hosts_job(const char *hosts, uint64_t options, const char *config,
                               char to[NAME_BYTES_MAX + 1]);
JOB_API const char *monarch_config_file(const char *const *envp, const char *directory,
                                        char place[PATH_MAX]);

/* -- procfs.c -- */

uint64_t process_start_ticks(pid_t pid);
bool process_is_stopped(pid_t pid);
pid_t process_parent(pid_t pid);
size_t process_command(pid_t pid, char *words, size_t max);

#endif
