/* main.c - the command `monarch`: `run` is done here, every other verb by Python. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"
#include "program.h"
#include "python.h"
#include "launcher.h"
#include "words.h"

/* ask_python - becomes `python -P -m monarch ARGUMENTS`, without the Shim. */
static int ask_python(char **arguments, char **envp)
{
    const char *const nothing[] = {NULL};
    char path[PATH_MAX], **argv;
    int err = python_find(path);

    if (!err) {
        argv = python_argv(path, nothing, arguments);
        envp = preload_remove(envp);
        if (argv && envp)
            python_exec(path, argv, envp);
        err = argv && envp ? -errno : -ENOMEM;
    }
    words_error("cannot run Python at %s: %s (MONARCH_STAGING_PYTHON names another)",
                path, strerror(-err));
    return EXIT_OURS;
}

int main(int argc, char **argv, char **envp)
{
    words_begin();
    if (argc > 1 && !strcmp(argv[1], "run")) {
        int code = run_command(argv + 2, envp);

        if (code != -ENOTSUP)
            return code;
    }
    return ask_python(argv + (argc > 0), envp);
}
