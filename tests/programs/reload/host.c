/* Loads each file, calls a function of it in a new thread, and unloads the file, in turn and often
 * (ROUNDS). The files are loaded as ./plugin.so if that is the first argument, otherwise by their
 * own names. Prints "called FUNCTION ADDRESS" for each call. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef ROUNDS
#define ROUNDS 10
#endif
#define CALLS 3

static void (*function)(void);

static void *call(void *name)
{
    for (int n = 0; n < CALLS; n++) {
        function();
        printf("called %s %p\n", (const char *)name, (void *)function);
    }
    return NULL;
}

int main(int count, char **words)
{
    int links = strcmp(words[1], "./plugin.so") == 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int n = links ? 2 : 1; n + 1 < count; n += 2) {
            if (links && (unlink(words[1]), link(words[n], words[1])) != 0)
                return 2;
            void *plugin = dlopen(links ? words[1] : words[n], RTLD_NOW);
            pthread_t thread;
            if (!plugin || !(function = (void (*)(void))dlsym(plugin, words[n + 1]))
                || pthread_create(&thread, NULL, call, words[n + 1]) != 0
                || pthread_join(thread, NULL) != 0 || dlclose(plugin) != 0)
                return 2;
        }
    return 0;
}
