from verl_env.cli import main

raise SystemExit(main())
