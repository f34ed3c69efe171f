"""The one place that says where the jobs live; on a cluster, `{{ae}}` keeps them in one slot."""

import os

AE = os.environ.get("MIGRATOR_JOBS_PREFIX", "ae")
