"""What tests look at and change of a running broker, by what it is about; `blocking_views` for programs without trio."""
