/* empty_shim.c - a library in place of the Shim that does nothing. */
extern int shim_is_here;
int shim_is_here = 1;
