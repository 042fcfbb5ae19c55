"""trainers: behaviour cloning and reinforcement learning."""

import sys


class _Names:
    """Looks, at the first import of a package below, whether it is ours (drv_env.own_names)."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing; raises what says who has the name."""
        if name in ("agents", "replay"):
            from drv_env.own_names import refuse_others

            refuse_others(name)


if "." not in __name__:  # where they have names of their own
    sys.meta_path.insert(0, _Names)  # type: ignore[arg-type]
