/* must_fail.c - contains one fault of each kind, to prove that the sanitizers see them.
 *
 *   must_fail race | overflow
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int shared_number;

static void *count(void *unused)
{
    for (int i = 0; i < 100000; i++)
        shared_number++;
    return unused;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "race") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, count, NULL);
        count(NULL);
        pthread_join(other, NULL);
        return 0;
    }
    int length = 14 + argc; /* unknown at compile time: only ASan can find it */
    char *bytes = malloc((size_t)length);
    for (int i = 0; bytes && i <= length; i++)
        bytes[i] = (char)argc;
    int sum = bytes ? bytes[3] == 99 : 0;
    free(bytes);
    return sum;
}
