/*
 * fault.h: failures that a test asks for by the setting app.fault. Only test/run builds with it.
 */
#ifndef WEIR_FAULT_H
#define WEIR_FAULT_H

#include "compat.h"

static inline bool
fault_wanted(const char *name)
{
    const char *wanted = GetConfigOption("app.fault", true, false);

    return wanted != NULL && strcmp(wanted, name) == 0;
}

static inline void
fault_point(const char *name)
{
    if (fault_wanted(name))
        elog(ERROR, "fault at %s", name);
}

static inline void
fault_conflict(const char *name)
{
    if (fault_wanted(name))
        compat_conflict();
}

#endif /* WEIR_FAULT_H */
