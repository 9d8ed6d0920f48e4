/* Threads created in a shared library's constructor before main, and in a library that main loads
 * with dlopen and unloads again. */
#include <dlfcn.h>
#include <stdio.h>

int library_constructed(void);

int main(void)
{
    int from_constructor = library_constructed();

    void *plugin = dlopen("libplugin.so", RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "library: %s\n", dlerror());
        return 2;
    }
    int (*plugin_run)(int) = (int (*)(int))dlsym(plugin, "plugin_run");
    int from_plugin = plugin_run(3);
    dlclose(plugin);

    printf("library: %d from the constructor, %d from the plugin\n", from_constructor, from_plugin);
    return from_constructor == 1 && from_plugin == 3 ? 0 : 1;
}
