"""The subcommands of ``drv``, one module each; nothing heavy is imported before one runs."""
