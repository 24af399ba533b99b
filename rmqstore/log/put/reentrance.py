"""Whether a call comes in the middle of another one: from a signal handler, or from a hook."""

import sys


def is_inside_call_of(owner: object) -> bool:
    """Whether this thread stands in another call of a method of `owner`, below the one that asks and in its module (a
    subclass may well call it).

    Such a call may hold locks, and it does not go on before the caller returns: a wait for it never ends.
    """
    asking = sys._getframe(1)
    frame = asking.f_back
    while frame is not None:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        is_method = code.co_filename == asking.f_code.co_filename and names[:1] == ("self",)
        if is_method and code.co_name != "__exit__" and frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False
