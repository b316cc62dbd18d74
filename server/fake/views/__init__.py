"""Views in which tests read and change a running broker, by subject; `blocking_views` for programs without trio."""
